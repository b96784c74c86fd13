# Stands in for postgres:17.
FROM stand-in/debian:trixie
RUN apt-get update -qq && apt-get install -qq -y --no-install-recommends postgresql-17 && rm -rf /var/lib/postgresql/17 \
 && install -d -o postgres -g postgres -m 0700 /var/lib/postgresql/data
ENV PATH=/usr/lib/postgresql/17/bin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin PGDATA=/var/lib/postgresql/data LANG=C.UTF-8
COPY postgres-entrypoint /usr/local/bin/
STOPSIGNAL SIGINT
ENTRYPOINT ["postgres-entrypoint"]
CMD ["postgres"]
