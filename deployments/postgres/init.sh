#!/bin/sh
# Run once by the postgres image on an empty volume: a role and a database each for Prefect and MLflow, neither sees the other's.
set -eu
admin=${POSTGRES_USER:-postgres}
for name in prefect mlflow; do
  # psql reads the password itself, so that no list of processes shows it.
  SECRET=${CREDENTIALS_DIRECTORY:-/run/secrets}/${name}_db_password
  export SECRET
  psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --set "name=$name" --username "$admin" --dbname postgres <<'SQL'
\set password `cat "$SECRET"`
CREATE ROLE :"name" LOGIN PASSWORD :'password' NOSUPERUSER NOCREATEDB NOCREATEROLE;
CREATE DATABASE :"name" OWNER :"name";
REVOKE ALL ON DATABASE :"name" FROM PUBLIC;
SQL
done
# Prefect searches names by trigrams.
psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --username "$admin" --dbname prefect --command 'CREATE EXTENSION IF NOT EXISTS pg_trgm'
