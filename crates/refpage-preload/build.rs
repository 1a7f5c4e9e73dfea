//! Keeps the C functions of `faultless-refpage` out of the preload's exports: a program that is
//! linked with that library itself shall get its own. For the same reason the preload has a name of
//! its own.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libfaultless_refpage_preload.so");
    println!("cargo:rerun-if-changed=build.rs");
}
