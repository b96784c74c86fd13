# Stands in for python:3.11-slim-bookworm: `python` and `pip` as there, and pip installs below /usr/local without being asked twice.
FROM stand-in/debian:bookworm
RUN apt-get update -qq && apt-get install -qq -y --no-install-recommends python3 python3-pip python3-venv ca-certificates \
 && rm /usr/lib/python3.*/EXTERNALLY-MANAGED && ln -s python3 /usr/bin/python
# The machine's own, for an index behind a proxy that signs for itself.
COPY ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
