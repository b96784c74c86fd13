# Stands in for nginxinc/nginx-unprivileged, whose wget is busybox's.
FROM stand-in/debian:trixie
RUN apt-get update -qq && apt-get install -qq -y --no-install-recommends nginx-light busybox && ln -s busybox /usr/bin/wget
STOPSIGNAL SIGQUIT
CMD ["nginx", "-g", "daemon off;"]
