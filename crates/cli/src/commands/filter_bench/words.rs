//! The output of filter_bench, in its format, printed as the measurement proceeds; and the
//! explanation of its terms.

use std::io::{self, Write};

use trommel_lab::filter_bench::{FilterCell, Mix, Rate, Timing, Told};

const RULE: &str = "----------------------------";

pub(super) const LEGEND: &str = "\
\"Inside\"              a key that was added to the filter; 95% of the keys, so that the processor
                      cannot guess the answer
\"Outside\"             a key that was not
\"FN\"                  false negative: \"no\" to a key that was added; must never happen
\"FP\"                  false positive: \"maybe\" to a key that was not
\"Expected\"            the rate by theory, exact for these very filters
\"Prelim\"              the rate measured, with an interval from the variance between filters:
                      one filter of few keys differs from the mean by some percent
\"Gross filter\"        a query with all around it: choosing a filter, making a key, hashing it
\"Dry run\"             all of that but the filter
\"net\"                 gross less dry: the filter itself; - if lost in the noise
\"ns/op\"               nanoseconds for a key asked, or added
\"Bytes/key building\"  what building takes for a key at its worst, beyond the filter
\"Single filter\"       one filter, which the processor's cache holds if it is small
\"Batched, prepared\"   several keys at once, to one filter drawn for them
\"Batched, unprepared\" the same, asked one by one
\"Random filter\"       another filter for each key
\"Skewed X% in Y%\"     X% of the keys go to Y% of the filters, the others to the rest
";

/// Prints partial results.
pub(super) struct Words<'a> {
    out: &'a mut dyn Write,
    /// Whether to print only the net time of a pattern.
    is_brief: bool,
    mix: Option<Mix>,
}

impl<'a> Words<'a> {
    pub(super) fn new(out: &'a mut dyn Write, is_brief: bool) -> Self {
        Self { out, is_brief, mix: None }
    }

    pub(super) fn print(&mut self, told: Told<'_>) -> io::Result<()> {
        match told {
            Told::Built(cell) => self.built(cell),
            Told::Rated(_, rate) => self.rated(rate),
            Told::Timed(timing) => self.timed(timing),
        }
    }

    fn built(&mut self, cell: &FilterCell) -> io::Result<()> {
        let out = &mut *self.out;
        let bits = cell.built.stored_bits;
        // RocksDB's own limit of tolerance.
        let tolerable = (-(bits - 1.0) / (1.4 + bits / 50.0)).exp2();
        match &cell.setup.kernel {
            Some(kernel) => writeln!(out, "Filter: {}, asked with {kernel} code", cell.setup.spec)?,
            None => writeln!(out, "Filter: {}", cell.setup.spec)?,
        }
        writeln!(out, "Build avg ns/key: {:.2}", cell.built.build_ns)?;
        if let Some(bytes) = cell.built.build_bytes {
            writeln!(out, "Bytes/key building: {bytes:.2}")?;
        }
        writeln!(out, "Number of filters: {}", cell.built.filters)?;
        writeln!(out, "Total size (MB): {:.3}", cell.built.memory_bytes as f64 / 1_048_576.0)?;
        writeln!(out, "Bits/key stored: {bits:.4}")?;
        writeln!(out, "Probes (k): {}", cell.built.probes)?;
        writeln!(out, "Best possible FP rate %: {}", percent((-bits).exp2()))?;
        writeln!(out, "Tolerable FP rate %: {}", percent(tolerable))?;
        writeln!(out, "{RULE}\nVerifying...")
    }

    fn rated(&mut self, rate: &Rate) -> io::Result<()> {
        let out = &mut *self.out;
        writeln!(out, " No FNs :)")?;
        writeln!(out, " Expected FP rate %: {}", percent(rate.expected))?;
        writeln!(
            out,
            " Prelim FP rate %: {} ({} of {} keys, {:+.2} standard errors off)",
            percent(rate.measured),
            rate.false_positives,
            rate.asked,
            rate.deviation()
        )?;
        writeln!(
            out,
            " 95% interval %: {} to {}",
            percent(rate.interval.0),
            percent(rate.interval.1)
        )
    }

    fn timed(&mut self, timing: &Timing) -> io::Result<()> {
        let mix = timing.pattern.mix;
        if self.mix != Some(mix) {
            writeln!(self.out, "{RULE}\n{}...", mix.name())?;
            self.mix = Some(mix);
        }
        if !self.is_brief {
            writeln!(self.out, "    Gross filter ns/op: {:.2}", timing.gross_ns)?;
            writeln!(self.out, "    Dry run      ns/op: {:.2}", timing.dry_ns)?;
        }
        let access = timing.pattern.access.name();
        let net = timing.net_ns().map_or_else(|| "-".into(), |net| format!("{net:.2}"));
        writeln!(self.out, "  {access} net ns/op: {net}")
    }

    /// The end, once everything is measured.
    pub(super) fn finish(self, cell: &FilterCell) -> io::Result<()> {
        let Some(rate) = &cell.rate else { return Ok(()) };
        writeln!(self.out, "{RULE}")?;
        writeln!(self.out, "    Average FP rate %: {}", percent(rate.measured))?;
        writeln!(self.out, "    Worst   FP rate %: {}", percent(rate.worst))?;
        writeln!(self.out, "    Best    FP rate %: {}", percent(rate.best))?;
        if let Some(bits) = cell.best_possible_bits() {
            writeln!(self.out, "    Best possible bits/key: {bits:.3}")?;
        }
        writeln!(self.out, "{RULE}\nDone. (--legend says what the words mean.)")
    }
}

/// A rate in percent, to four digits or more.
fn percent(rate: f64) -> String {
    let percent = 100.0 * rate;
    if percent == 0.0 || percent >= 1e-3 {
        format!("{percent:.5}")
    } else {
        format!("{percent:.4e}")
    }
}
