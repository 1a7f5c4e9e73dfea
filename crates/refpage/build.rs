//! Gives the C library a name with its interface's version, so that a later one can stand beside it.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libfaultless_refpage.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
