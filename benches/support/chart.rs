//! Charts as SVG, to be read on light ground and on dark.

use std::fmt::{self, Write as _};

/// How values become places.
#[derive(Clone, Copy, Debug)]
pub enum Scale {
    Linear,
    Logarithmic,
}

/// One axis: the values at its ends, and where on the picture these are.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    pub scale: Scale,
    pub values: (f64, f64),
    pub places: (f64, f64),
}

impl Axis {
    /// Where a value goes. What lies beyond an end is put there.
    pub fn place(&self, value: f64) -> f64 {
        let (low, high) = self.values;
        let value = value.clamp(low, high);
        let part = match self.scale {
            Scale::Linear => (value - low) / (high - low),
            Scale::Logarithmic => (value / low).ln() / (high / low).ln(),
        };
        self.places.0 + part * (self.places.1 - self.places.0)
    }

    /// Values to mark: powers of ten, or quarters.
    pub fn ticks(&self) -> Vec<f64> {
        let (low, high) = self.values;
        match self.scale {
            Scale::Linear => [0.0, 0.25, 0.5, 0.75, 1.0].map(|part| low + part * (high - low)).to_vec(),
            Scale::Logarithmic => std::iter::successors(Some(low), |tick| Some(tick * 10.0))
                .take_while(|tick| *tick <= high * 1.001)
                .collect(),
        }
    }
}

/// The power of ten at or above a value.
pub fn ceiling(value: f64) -> f64 {
    10_f64.powf(value.max(f64::MIN_POSITIVE).log10().ceil())
}

/// The power of ten at or below a value.
pub fn floor(value: f64) -> f64 {
    10_f64.powf(value.max(f64::MIN_POSITIVE).log10().floor())
}

/// The value at or above this one whose quarters are round.
pub fn round_ceiling(value: f64) -> f64 {
    let quarter = value / 4.0;
    let unit = floor(quarter);
    4.0 * unit * [1.0, 2.0, 5.0].into_iter().find(|times| times * unit >= quarter).unwrap_or(10.0)
}

/// A number as it stands at a tick: short, with `k` and `M`.
pub fn short(value: f64) -> String {
    let plain = |value: f64| {
        let text = if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") };
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
    };
    match value {
        v if v >= 1e6 => format!("{}M", plain(v / 1e6)),
        v if v >= 1e4 => format!("{}k", plain(v / 1e3)),
        v if v > 0.0 && v < 0.01 => format!("{v}"),
        v => plain(v),
    }
}

/// Where a text is held.
#[derive(Clone, Copy, Debug)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture under way.
pub struct Picture {
    body: String,
    size: (f64, f64),
    label: String,
}

impl Picture {
    /// An empty one, with a heading; `label` is read to those who can't see it.
    pub fn new(size: (f64, f64), heading: &str, label: &str) -> Self {
        let mut picture = Self { body: String::new(), size, label: label.to_owned() };
        picture.text((12.0, 24.0), Anchor::Start, "text head", heading);
        picture
    }

    /// A text; `class` is one of the style's.
    pub fn text(&mut self, at: (f64, f64), anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escaped(text);
        self.add(format_args!(
            r#"<text class="{class}" x="{:.1}" y="{:.1}" text-anchor="{anchor}">{text}</text>"#,
            at.0, at.1
        ));
    }

    /// A line through points, in colour number `colour`.
    pub fn line(&mut self, points: impl IntoIterator<Item = (f64, f64)>, colour: usize) {
        let points: Vec<String> = points.into_iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        self.add(format_args!(r#"<polyline class="curve c{colour}" points="{}"/>"#, points.join(" ")));
    }

    /// A dot.
    pub fn dot(&mut self, at: (f64, f64), colour: usize) {
        self.add(format_args!(r#"<circle class="fill f{colour}" cx="{:.1}" cy="{:.1}" r="3"/>"#, at.0, at.1));
    }

    /// A bar.
    pub fn bar(&mut self, from: (f64, f64), size: (f64, f64), colour: usize) {
        self.add(format_args!(
            r#"<rect class="fill f{colour}" x="{:.1}" y="{:.1}" width="{:.1}" height="{:.1}" rx="2"/>"#,
            from.0, from.1, size.0, size.1
        ));
    }

    /// Ticks and grid of both axes.
    pub fn grid(&mut self, x: &Axis, y: &Axis, name: impl Fn(f64) -> String) {
        for tick in x.ticks() {
            let at = x.place(tick);
            self.rule((at, y.places.0), (at, y.places.1));
            self.text((at, y.places.0.max(y.places.1) + 15.0), Anchor::Middle, "dim", &short(tick));
        }
        for tick in y.ticks() {
            let at = y.place(tick);
            self.rule((x.places.0, at), (x.places.1, at));
            self.text((x.places.0 - 5.0, at + 4.0), Anchor::End, "dim", &name(tick));
        }
    }

    /// A line of the grid.
    pub fn rule(&mut self, from: (f64, f64), to: (f64, f64)) {
        self.add(format_args!(
            r#"<line class="grid" x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}"/>"#,
            from.0, from.1, to.0, to.1
        ));
    }

    fn add(&mut self, element: fmt::Arguments<'_>) {
        // Writing to a String does not fail.
        let _ = writeln!(self.body, "  {element}");
    }

    /// The whole file.
    pub fn svg(&self) -> String {
        let Self { body, size: (width, height), label } = self;
        let mut style = String::new();
        for (number, (light, _)) in COLOURS.iter().enumerate() {
            let _ = writeln!(style, "    .c{number} {{ stroke: {light}; }} .f{number} {{ fill: {light}; }}");
        }
        style += "    @media (prefers-color-scheme: dark) {\n      .text { fill: #e6edf3; } .dim { fill: #8b949e; } \
                  .grid { stroke: #30363d; }\n";
        for (number, (_, dark)) in COLOURS.iter().enumerate() {
            let _ = writeln!(style, "      .c{number} {{ stroke: {dark}; }} .f{number} {{ fill: {dark}; }}");
        }
        style += "    }\n";
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"ui-sans-serif, system-ui, sans-serif\" font-size=\"13\" role=\"img\" aria-label=\"{}\">\n  \
             <style>\n    .text {{ fill: #1f2328; }} .head {{ font-size: 15px; font-weight: 600; }}\n    \
             .dim {{ fill: #57606a; font-size: 11px; }}\n    .grid {{ stroke: #d0d7de; }}\n    \
             .curve {{ fill: none; stroke-width: 2; stroke-linejoin: round; }}\n{style}  </style>\n{body}</svg>\n",
            escaped(label)
        )
    }
}

/// On light ground and on dark. The mirror's own comes first.
const COLOURS: [(&str, &str); 7] = [
    ("#0969da", "#58a6ff"),
    ("#8250df", "#bc8cff"),
    ("#bc4c00", "#f0883e"),
    ("#57606a", "#8b949e"),
    ("#1a7f37", "#3fb950"),
    ("#cf222e", "#ff7b72"),
    ("#9a6700", "#d29922"),
];

/// How many colours there are.
pub const COLOUR_COUNT: usize = COLOURS.len();

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
