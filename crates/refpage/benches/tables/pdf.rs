//! The PDF that pdftoppm renders: slides with text, drawings, pictures and transparency.
//!
//! It is the same in every run, and made of what real documents are made of. Pictures and
//! transparent groups are what makes a renderer allocate large buffers.

use crate::statistics::Random;
use std::fmt::Write;

const PAGES: usize = 12;
const LINES: usize = 10;
const PICTURE: usize = 480;

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
                "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 720 540] /Contents {number} 0 R /Resources \
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

/// A picture without compression, so that no library is needed to write it.
fn picture() -> Vec<u8> {
    let head = format!(
        "<< /Type /XObject /Subtype /Image /Width {PICTURE} /Height {PICTURE} /BitsPerComponent 8 \
         /ColorSpace /DeviceRGB /Length {} >>\nstream\n",
        PICTURE * PICTURE * 3
    );
    let pixel = |i: usize| {
        let (x, y) = (i % PICTURE, i / PICTURE);
        [(x * 255 / PICTURE) as u8, (y * 255 / PICTURE) as u8, (x * y / 97) as u8]
    };
    let pixels = (0..PICTURE * PICTURE).flat_map(pixel);
    head.into_bytes().into_iter().chain(pixels).chain(*b"\nendstream").collect()
}

fn page(random: &mut Random) -> String {
    let mut content = String::from("BT /F 16 Tf 20 TL 40 500 Td\n");
    for _ in 0..LINES {
        let words: Vec<String> = (0..9).map(|_| word(random)).collect();
        let _ = writeln!(content, "({}) Tj T*", words.join(" "));
    }
    content += "ET\nq 200 0 0 200 480 40 cm /P Do Q\n/T gs q 1 0 0 1 40 60 cm /G Do Q\n";
    content += "q 0.8 0 0 0.8 200 200 cm /G Do Q q 250 0 0 150 60 330 cm /P Do Q\n";
    content + &drawing(random, 720, 540)
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
