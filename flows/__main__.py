"""Entry point of `python -m flows`: the console script, where it is not installed."""

from flows.cli.main import main

if __name__ == "__main__":
    main()
