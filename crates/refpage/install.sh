#!/bin/sh
# Installs the C library, its header and its pkg-config file, and the preload.
#
#   crates/refpage/install.sh [PREFIX]        PREFIX is /usr/local by default
#   DESTDIR=/tmp/stage crates/refpage/install.sh /usr
#   CARGO_ARGS="--target-dir DIR" ...         more arguments for cargo build
set -eu
case "${1:-}" in
-h | --help)
    sed -n '2,6s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
-*)
    echo "install.sh: $1 is not a prefix (try --help)" >&2
    exit 2
    ;;
esac
absolute() {
    case $1 in /*) printf '%s\n' "$1" ;; *) printf '%s\n' "$PWD/$1" ;; esac
}
prefix=$(absolute "${1:-/usr/local}")
to=${DESTDIR:+$(absolute "$DESTDIR")}$prefix
here=$(cd "$(dirname "$0")" && pwd)
cd "$here"

# shellcheck disable=SC2086  # CARGO_ARGS is a list of words.
built=$(cargo build --release ${CARGO_ARGS:-} -p faultless-refpage -p faultless-refpage-preload \
    --message-format=json-render-diagnostics)
# The shared library once more, with its interface's version in its name, so that a later one can stand
# beside it. A build script's link arguments would be handed on to the preload, which must not have the
# name: a program that is linked with the library would take the preload for it.
soname=libfaultless_refpage.so.0
# shellcheck disable=SC2086
shared=$(cargo rustc --release ${CARGO_ARGS:-} -p faultless-refpage --crate-type cdylib \
    --message-format=json-render-diagnostics -- -C "link-arg=-Wl,-soname,$soname")
file() {
    printf '%s\n' "$1" | grep -o "\"[^\"]*/$2\"" | tr -d '"' | tail -n 1
}
version=$(printf '%s\n' "$built" | sed -n 's/.*faultless-refpage[@#]\([0-9.]*\)".*/\1/p' | tail -n 1)

mkdir -p "$to/lib/pkgconfig" "$to/include"
for name in libfaultless_refpage.a libfaultless_refpage_preload.so; do
    install -m 644 "$(file "$built" "$name")" "$to/lib/$name"
done
# Programs look for the one name, the linker for the other.
install -m 644 "$(file "$shared" libfaultless_refpage.so)" "$to/lib/$soname"
ln -sf "$soname" "$to/lib/libfaultless_refpage.so"
install -m 644 include/faultless_refpage.h "$to/include/"
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" pkgconfig/faultless-refpage.pc.in \
    >"$to/lib/pkgconfig/faultless-refpage.pc"
# The dynamic linker finds what is in these two by its cache alone.
case "$(id -u):$to" in
0:/usr | 0:/usr/local) ldconfig ;;
esac
echo "installed to $to" >&2
