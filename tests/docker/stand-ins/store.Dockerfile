# Stands in for SeaweedFS, which Debian does not have: moto's S3, in memory, and the health page that compose.yaml asks.
FROM python:3.11.14-slim-bookworm
RUN apt-get install -qq -y --no-install-recommends busybox && ln -s busybox /usr/bin/wget
ARG PIP_INDEX_URL
RUN pip install --no-cache-dir --cert /etc/ssl/certs/ca-certificates.crt "moto[server,s3]"
COPY store.py /usr/local/bin/store
ENTRYPOINT ["store"]
