#!/bin/sh
# Creates a certificate authority, a server certificate and a client certificate, for tests and small
# private networks. The names of the files are those that nbdkit, QEMU, libnbd and forebay expect.
#
#     contrib/tls/make-pki.sh DIR HOST
#
# DIR/server: for `forebay serve --tls-certificates DIR/server`. HOST is the name that clients use.
# DIR/client: for clients. `tls-certificates=DIR/client` in an NBD URI.
# DIR/ca-key.pem: the key of the authority. Keep it away from both.
set -eu

if [ $# -ne 2 ]; then
    echo "usage: $0 DIR HOST" >&2
    exit 2
fi
dir=$1 host=$2
if [ -e "$dir/ca-key.pem" ]; then
    echo "$0: $dir/ca-key.pem exists: choose another directory, or remove this one" >&2
    exit 1
fi
case $host in
    *:*) name=IP:$host ;;
    *[!0-9.]*) name=DNS:$host ;;
    *) name=IP:$host ;;
esac
umask 077
mkdir -p "$dir/server" "$dir/client"
days=825
key="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"

# Messages of openssl appear only if a step fails.
quietly() {
    out=$("$@" 2>&1) || { echo "$out" >&2; exit 1; }
}

quietly openssl req -x509 $key -days $days -subj "/CN=forebay test CA" \
    -addext keyUsage=critical,keyCertSign,cRLSign \
    -keyout "$dir/ca-key.pem" -out "$dir/ca-cert.pem"

# certificate ROLE NAME EXTENSIONS
certificate() {
    quietly openssl req -new $key -subj "/CN=$2" \
        -keyout "$dir/$1/$1-key.pem" -out "$dir/$1/request.pem"
    printf '%s\n' "basicConstraints=critical,CA:FALSE" "$3" > "$dir/$1/extensions"
    quietly openssl x509 -req -days $days -in "$dir/$1/request.pem" \
        -CA "$dir/ca-cert.pem" -CAkey "$dir/ca-key.pem" -CAcreateserial \
        -extfile "$dir/$1/extensions" -out "$dir/$1/$1-cert.pem"
    rm "$dir/$1/request.pem" "$dir/$1/extensions"
    cp "$dir/ca-cert.pem" "$dir/$1/"
}

certificate server "$host" "subjectAltName=$name
extendedKeyUsage=serverAuth"
certificate client client "extendedKeyUsage=clientAuth"
rm -f "$dir/ca-cert.srl"
echo "$dir/server is for the server, $dir/client for its clients"
