//! Keeps the C functions of `faultless-refpage` out of the preload's exports: a program that is
//! linked with that library itself shall get its own.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    println!("cargo:rerun-if-changed=build.rs");
}
