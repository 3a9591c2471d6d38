//! Assembles the page.

use super::data::{Data, Source};
use super::html::{details, escaped, section};
use super::{facts, workloads};

const STYLE: &str = include_str!("style.css");

const ABOUT_SPEED: &str = "Operations a second; longer is better. Where a workload was repeated: \
                           the geometric mean, with the minimum and the maximum.";
const ABOUT_WORKLOADS: &str = "Latencies are of single operations, where they were measured. CPU \
                               seconds are those of the whole process.";
const ABOUT_FILTERS: &str = "A filter’s false positive wastes a read. Dots are measured rates, \
                             with their 95% interval (Wilson’s); short lines are the theoretical \
                             rates for exactly these probes. Intervals assume independent probes: \
                             they are too narrow where the same missing keys are looked up again, \
                             as in readrandom.";
const ABOUT_AMPLIFICATION: &str = "Write: bytes written to files per byte that the user wrote. \
                                   Space: bytes of files per byte of live data. Read: data blocks \
                                   searched per lookup.";
const ABOUT_FIGURES: &str = "By field name. The bytes of histograms are omitted.";

/// The page about `sources`. It needs no other file, no network and no script.
pub fn page(title: &str, sources: &[Source]) -> String {
    let data = Data::new(sources);
    let sections = sections(&data);
    let stores = data.variants.iter().map(|variant| variant.label.as_str());
    let stores = stores.collect::<Vec<_>>().join(", ");
    document(title, &stores, &facts::headline(&data), &(facts::warnings(&data) + &sections))
}

/// A page from its title, its subject, its headline and its parts as HTML.
pub(super) fn document(title: &str, about: &str, headline: &str, body: &str) -> String {
    document_with("", title, about, headline, body)
}

/// As [`document`], with `head` as part of its head.
pub(super) fn document_with(
    head: &str,
    title: &str,
    about: &str,
    headline: &str,
    body: &str,
) -> String {
    let [title, about, headline] = [title, about, headline].map(escaped);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n{head}\
         <title>{title}</title>\n<link rel=\"icon\" href=\"data:,\">\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n<h1>{title}</h1>\n\
         <p class=\"stores\">{about}</p>\n<p class=\"lead\">{headline}</p>\n</header>\n<main>\n\
         {body}</main>\n</body>\n</html>\n"
    )
}

/// The colours of the page's style, for light and for dark.
pub(super) fn colours() -> &'static str {
    STYLE.split_once("* {").map_or("", |(colours, _)| colours)
}

/// All sections with content.
fn sections(data: &Data<'_>) -> String {
    let key = workloads::variants_key(data);
    let with_key = |content: String| match content.is_empty() {
        true => content,
        false => format!("{key}{content}"),
    };
    let curves = with_key(workloads::cards(data));
    let filters = with_key(facts::filters(data) + &facts::budgets(data));
    let figures = details("Show all records", &facts::everything(data));
    [
        ("speed", "Throughput", ABOUT_SPEED, workloads::side_by_side(data)),
        ("workloads", "Workloads", ABOUT_WORKLOADS, workloads::overview(data)),
        ("curves", "Over time, and by percentile", "", curves),
        ("filters", "Filters: measured and expected", ABOUT_FILTERS, filters),
        ("memory", "Memory by part", "As each workload left it.", facts::memory(data)),
        ("tree", "Levels", "As the last workload left them.", facts::levels(data)),
        (
            "amplification",
            "Reads, writes and amplification",
            ABOUT_AMPLIFICATION,
            workloads::amplification(data),
        ),
        ("settings", "Settings", "Every option, defaults included.", facts::settings(data)),
        ("environment", "Machine and build", "", facts::environment(data)),
        ("figures", "Every figure", ABOUT_FIGURES, figures),
    ]
    .map(|(id, heading, lead, content)| section(id, heading, lead, &content))
    .concat()
}
