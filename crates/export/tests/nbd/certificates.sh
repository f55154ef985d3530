# An authority, a server and a client by it, and one by nobody known; in the directory $1.
set -e
cd "$1"
new() { # name, options that say who signs
    name=$1
    shift
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$name-key.pem" -subj "/CN=$name" "$@"
}
new ca -x509 -days 2 -out ca-cert.pem -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign
new other -x509 -days 2 -out other-cert.pem -addext basicConstraints=critical,CA:TRUE
printf 'subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=CA:FALSE\nkeyUsage=digitalSignature\nextendedKeyUsage=serverAuth,clientAuth\n' >extensions
for name in server client; do
    new "$name" -out "$name.csr"
    openssl x509 -req -in "$name.csr" -CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial -days 2 -extfile extensions -out "$name-cert.pem"
done
mkdir open with-certificate without stranger
cp server-cert.pem server-key.pem open
cp ca-cert.pem client-cert.pem client-key.pem with-certificate
cp ca-cert.pem without
cp ca-cert.pem stranger
cp other-cert.pem stranger/client-cert.pem
cp other-key.pem stranger/client-key.pem
