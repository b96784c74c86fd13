"""Make buckets in an S3 store where they are missing: `python make_bucket.py NAME ...`; AWS's variables say where and as whom."""

import sys

import boto3
from botocore.exceptions import BotoCoreError, ClientError

OURS = ("BucketAlreadyOwnedByYou", "BucketAlreadyExists")


def main() -> None:
    """Make each bucket named; one that is there is left alone."""
    client = boto3.client("s3")
    for name in sys.argv[1:]:
        try:
            client.create_bucket(Bucket=name)
            print(f"made bucket {name}")
        except ClientError as error:
            if error.response["Error"]["Code"] not in OURS:
                sys.exit(f"make_bucket: the store refuses bucket {name} ({error}); check its keys")
        except BotoCoreError as error:
            sys.exit(f"make_bucket: the store cannot be reached ({error}); check AWS_ENDPOINT_URL_S3")


if __name__ == "__main__":
    main()
