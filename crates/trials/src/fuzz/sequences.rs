//! Sequences of memory calls, made of random bytes or of damaged sequences, on the kernel and on the library.

use fastrand::Rng;
use faultless_oracle::kernel::{Host, Sequence, User};

use super::damage;
use faultless_machine::designs::DESIGNS;
use faultless_oracle::generate::{decode, encode, sequence};
use faultless_oracle::{Checking, Jury, Profile, pasteable};

/// Operations of a sequence that is then damaged.
const NR_OPS: usize = 24;

pub(super) fn start() -> Result<impl FnMut(&mut Rng), String> {
    let users: Vec<User> = [User::Nobody, User::Root].into_iter().filter(|&user| Host::can_be(user)).collect();
    let designs: Vec<&'static str> = DESIGNS.to_vec();
    let mut jury = Jury::start(&designs, &users, Checking::EachOperation, 0).map_err(|error| error.to_string())?;
    Ok(move |random: &mut Rng| {
        let sequence = drawn(random, &users);
        let compared = jury.compare(&sequence).unwrap_or_else(|error| panic!("{error}"));
        for (design, result) in compared.1 {
            if let Err(finding) = result {
                panic!("{}", pasteable(&sequence, &finding, design));
            }
        }
    })
}

/// Draws random bytes, or a sequence that knows what it does and damages its bytes.
fn drawn(random: &mut Rng, users: &[User]) -> Sequence {
    if random.u32(0..4) == 0 {
        let bytes: Vec<u8> = (0..random.usize(1..400)).map(|_| random.u8(..)).collect();
        return decode(&bytes);
    }
    let profile = [Profile::Usual, Profile::Hostile][random.usize(0..2)];
    let user = users[random.usize(0..users.len())];
    let mut bytes = encode(&sequence(random.u64(..), profile, user, random.u64(..), NR_OPS));
    damage::bytes(random, &mut bytes);
    decode(&bytes)
}
