# Stands in for python:3.13-slim.
FROM stand-in/debian:trixie
RUN apt-get update -qq && apt-get install -qq -y --no-install-recommends python3-minimal libpython3-stdlib
