//! Text of HTML and SVG elements.
//!
//! # Guarantee
//! Elements are closed, and whatever text or attribute value comes in stands in the document as text: names of
//! workloads and files can't become markup.

/// The names and values of an element's attributes.
pub type Attributes<'a> = &'a [(&'a str, &'a str)];

/// A document, or a part of one.
#[derive(Clone, Debug, Default)]
pub struct Markup {
    text: String,
    nr_names: usize,
}

impl Markup {
    /// Writes an element with what `inner` writes inside.
    pub fn within(&mut self, tag: &str, attributes: Attributes<'_>, inner: impl FnOnce(&mut Self)) {
        self.begin(tag, attributes);
        self.text.push('>');
        inner(self);
        self.text.push_str("</");
        self.text.push_str(tag);
        self.text.push('>');
    }

    /// Writes an element that holds text.
    pub fn line(&mut self, tag: &str, attributes: Attributes<'_>, text: &str) {
        self.within(tag, attributes, |inner| inner.text(text));
    }

    /// Writes an element that holds nothing, as SVG closes it.
    pub fn empty(&mut self, tag: &str, attributes: Attributes<'_>) {
        self.begin(tag, attributes);
        self.text.push_str("/>");
    }

    /// Writes text.
    pub fn text(&mut self, text: &str) {
        for letter in text.chars() {
            match letter {
                '&' => self.text.push_str("&amp;"),
                '<' => self.text.push_str("&lt;"),
                '>' => self.text.push_str("&gt;"),
                '"' => self.text.push_str("&quot;"),
                // No document may hold other control characters.
                control if control.is_control() && !matches!(control, '\n' | '\t') => self.text.push('\u{fffd}'),
                letter => self.text.push(letter),
            }
        }
    }

    /// Writes markup that is the program's own.
    pub fn own(&mut self, markup: &str) {
        self.text.push_str(markup);
    }

    /// Returns a name for an element that no other element of the document has.
    pub fn name(&mut self) -> String {
        self.nr_names += 1;
        format!("part{}", self.nr_names)
    }

    /// Returns the document.
    pub fn into_text(self) -> String {
        self.text
    }

    fn begin(&mut self, tag: &str, attributes: Attributes<'_>) {
        self.text.push('<');
        self.text.push_str(tag);
        for (name, value) in attributes {
            self.text.push(' ');
            self.text.push_str(name);
            self.text.push_str("=\"");
            self.text(value);
            self.text.push('"');
        }
    }
}

/// Returns a length on the page, with a tenth of a pixel.
pub fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_text() {
        let mut markup = Markup::default();
        markup.within("p", &[("title", "a\"><script>")], |inner| inner.text("</p><script>&\u{0}"));
        let expected = "<p title=\"a&quot;&gt;&lt;script&gt;\">&lt;/p&gt;&lt;script&gt;&amp;\u{fffd}</p>";
        assert_eq!(markup.into_text(), expected);
    }

    #[test]
    fn lengths_have_a_tenth_at_most() {
        assert_eq!([1.0, 1.04, 1.25, -3.96].map(px), ["1", "1", "1.2", "-4"]);
    }
}
