//! The PDF that pdftoppm renders: slides with text, drawings, pictures and transparency.
//!
//! It is the same in every run, and made of what slides are made of: pages of 13.3 x 7.5 inches, a
//! title, ten lines, a screenshot of 1,024 x 768 pixels, shapes. Pictures and transparent groups are
//! what makes a renderer allocate large buffers; of manuals, which are text alone, only a tenth of
//! the allocated bytes is above the threshold, so they would measure nothing.

use crate::statistics::Random;
use std::fmt::Write;

const PAGES: usize = 12;
const LINES: usize = 10;
const WIDTH: usize = 960;
const HEIGHT: usize = 540;
/// The picture's pixels.
const WIDE: usize = 1024;
const HIGH: usize = 768;

/// Returns the file's bytes.
pub(crate) fn make() -> Vec<u8> {
    let mut random = Random(20_200_814);
    let mut objects: Vec<Vec<u8>> = vec![
        b"<< /Type /Catalog /Pages 2 0 R >>".into(),
        Vec::new(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>".into(),
        picture(),
        b"<< /Type /ExtGState /ca 0.5 /CA 0.5 >>".into(),
        stream(
            "/Type /XObject /Subtype /Form /BBox [0 0 500 300] /Group << /S /Transparency /I true >>",
            &drawing(&mut random, 500, 300),
        ),
    ];
    let mut kids = String::new();
    for _ in 0..PAGES {
        objects.push(stream("", &page(&mut random)));
        let number = objects.len();
        objects.push(
            format!(
                "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {WIDTH} {HEIGHT}] /Contents {number} 0 R /Resources \
                 << /Font << /F 3 0 R >> /XObject << /P 4 0 R /G 6 0 R >> /ExtGState << /T 5 0 R >> >> >>"
            )
            .into(),
        );
        let _ = write!(kids, "{} 0 R ", number + 1);
    }
    objects[1] = format!("<< /Type /Pages /Kids [{kids}] /Count {PAGES} >>").into();
    assemble(&objects)
}

fn stream(head: &str, content: &str) -> Vec<u8> {
    format!("<< {head} /Length {} >>\nstream\n{content}\nendstream", content.len()).into()
}

/// A screenshot: sixteen colors, and runs of the same, which the simplest of all filters packs.
fn picture() -> Vec<u8> {
    let packed: Vec<u8> =
        (0..HIGH).flat_map(|y| packed_row(|x| ((x / 40) * 7 + (y / 30) * (x / 200 + 3)) as u8 % 16)).collect();
    let colors: String = (0..16).map(|i| format!("{:02x}{:02x}{:02x}", i * 16, 255 - i * 9, i * i)).collect();
    let head = format!(
        "<< /Type /XObject /Subtype /Image /Width {WIDE} /Height {HIGH} /BitsPerComponent 8 \
         /ColorSpace [/Indexed /DeviceRGB 15 <{colors}>] /Filter /RunLengthDecode /Length {} >>\nstream\n",
        packed.len()
    );
    head.into_bytes().into_iter().chain(packed).chain(*b"\nendstream").collect()
}

/// A row in PDF's run-length code: 257 less the length, then the byte.
fn packed_row(pixel: impl Fn(usize) -> u8) -> Vec<u8> {
    let row: Vec<u8> = (0..WIDE).map(pixel).collect();
    let runs = row.chunk_by(|a, b| a == b).flat_map(|run| run.chunks(128));
    runs.flat_map(|run| [(257 - run.len()) as u8, run[0]]).collect()
}

fn page(random: &mut Random) -> String {
    let mut content = format!("BT /F 36 Tf 40 490 Td ({} {}) Tj ET\n", word(random), word(random));
    content += "BT /F 18 Tf 24 TL 40 440 Td\n";
    for _ in 0..LINES {
        let words: Vec<String> = (0..9).map(|_| word(random)).collect();
        let _ = writeln!(content, "({}) Tj T*", words.join(" "));
    }
    content += "ET\nq 480 0 0 360 440 60 cm /P Do Q\n/T gs q 1 0 0 1 40 60 cm /G Do Q\n";
    content += "q 0.8 0 0 0.8 200 200 cm /G Do Q q 250 0 0 150 60 330 cm /P Do Q\n";
    content + &drawing(random, WIDTH, HEIGHT)
}

fn word(random: &mut Random) -> String {
    let len = 2 + random.below(8);
    (0..len).map(|_| (b'a' + random.below(26) as u8) as char).collect()
}

/// Some filled shapes and lines.
fn drawing(random: &mut Random, width: usize, height: usize) -> String {
    let mut content = String::new();
    for _ in 0..5 {
        let mut point = || format!("{} {}", random.below(width), random.below(height));
        let (a, b, c, d) = (point(), point(), point(), point());
        let color = format!("0.{} 0.{} 0.{}", random.below(10), random.below(10), random.below(10));
        let _ = writeln!(content, "{color} rg {color} RG {a} m {b} l {c} l f {a} m {b} {c} {d} c S");
    }
    content
}

fn assemble(objects: &[Vec<u8>]) -> Vec<u8> {
    let mut file = b"%PDF-1.4\n".to_vec();
    let mut table = format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1);
    for (index, object) in objects.iter().enumerate() {
        let _ = writeln!(table, "{:010} 00000 n ", file.len());
        file.extend(format!("{} 0 obj\n", index + 1).bytes());
        file.extend(object);
        file.extend(b"\nendobj\n");
    }
    let start = file.len();
    file.extend(table.bytes());
    let size = objects.len() + 1;
    file.extend(format!("trailer << /Size {size} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n").bytes());
    file
}
