use super::*;

const FORMATS: [Format; 4] = [Format::Table, Format::Json, Format::Jsonl, Format::Csv];

fn printed(
    format: Format,
    styled: bool,
    act: impl FnOnce(&mut Output<'_>) -> io::Result<()>,
) -> String {
    let mut bytes = Vec::new();
    let mut output = Output::new(format, styled, "test", &mut bytes);
    act(&mut output).unwrap();
    output.finish().unwrap();
    String::from_utf8(bytes).unwrap()
}

fn everything(output: &mut Output<'_>) -> io::Result<()> {
    output.list("levels", &["level", "file_bytes", "rate", "note"])?;
    let rates = [Value::Null, Value::Float(0.000_123_456)];
    for (level, rate) in ["L0", "L1"].into_iter().zip(rates) {
        let note = if level == "L0" { "" } else { "with, \"comma\"" };
        output.row(vec![level.into(), Value::Size(1 << 20), rate, note.into()])?;
    }
    output.record("memory", &[("filters", Value::Size(2048)), ("is_open", true.into())])?;
    let nested = Value::Record(vec![("a", Value::List(vec![Value::Integer(1), Value::Null]))]);
    output.record("", &[("entries", Value::Count(1_234_567)), ("nested", nested)])
}

#[test]
fn each_format_has_its_shape() {
    assert_eq!(
        printed(Format::Table, false, everything),
        "level  file bytes      rate  note\n\
         L0          1 MiB         -\n\
         L1          1 MiB  1.235e-4  with, \"comma\"\n\
         \n\
         filters  2 KiB\n\
         is open  yes\n\
         \n\
         entries  1,234,567\n\
         nested   a 1, -\n"
    );
    assert_eq!(
        printed(Format::Json, false, everything),
        "{\"schema\":\"trommel.test.v1\",\n\"levels\":[\n\
         {\"level\":\"L0\",\"file_bytes\":1048576,\"rate\":null,\"note\":\"\"},\n\
         {\"level\":\"L1\",\"file_bytes\":1048576,\"rate\":0.000123456,\
         \"note\":\"with, \\\"comma\\\"\"}],\n\
         \"memory\":{\"filters\":2048,\"is_open\":true},\n\
         \"entries\":1234567,\n\"nested\":{\"a\":[1,null]}}\n"
    );
    assert_eq!(
        printed(Format::Jsonl, false, everything),
        "{\"level\":\"L0\",\"file_bytes\":1048576,\"rate\":null,\"note\":\"\"}\n\
         {\"level\":\"L1\",\"file_bytes\":1048576,\"rate\":0.000123456,\
         \"note\":\"with, \\\"comma\\\"\"}\n\
         {\"filters\":2048,\"is_open\":true}\n\
         {\"entries\":1234567,\"nested\":{\"a\":[1,null]}}\n"
    );
    assert_eq!(
        printed(Format::Csv, false, everything),
        "level,file_bytes,rate,note\n\
         L0,1048576,,\"\"\n\
         L1,1048576,0.000123456,\"with, \"\"comma\"\"\"\n\
         \n\
         filters,is_open\n\
         2048,true\n\
         \n\
         entries,nested\n\
         1234567,\"{\"\"a\"\":[1,null]}\"\n"
    );
}

#[test]
fn a_document_is_json_whatever_is_in_it() {
    let nothing = printed(Format::Json, false, |_| Ok(()));
    assert_eq!(nothing, "{\"schema\":\"trommel.test.v1\"}\n");
    let odd = printed(Format::Json, false, |output| {
        output.list("rows", &["number"])?;
        output.list("more", &["text"])?;
        output.row(vec!["\u{1}\"\\\n".into()])?;
        output.lone("rate", f64::NAN)
    });
    let odd: serde_json::Value = serde_json::from_str(&odd).unwrap();
    assert_eq!(odd["rows"], serde_json::json!([]));
    assert_eq!(odd["more"][0]["text"], "\u{1}\"\\\n");
    assert_eq!(odd["rate"], serde_json::Value::Null);
}

#[test]
fn a_lone_value_is_the_whole_table() {
    let lone = |format| printed(format, false, |output| output.lone("count", Value::Count(12_345)));
    assert_eq!(lone(Format::Table), "12345\n");
    assert_eq!(lone(Format::Csv), "count\n12345\n");
    assert_eq!(lone(Format::Jsonl), "{\"count\":12345}\n");
}

#[test]
fn headings_are_styled_only_on_request() {
    for format in FORMATS {
        assert!(!printed(format, false, everything).contains('\x1b'), "{format:?}");
    }
    let styled = printed(Format::Table, true, everything);
    assert!(styled.starts_with("\x1b[1mlevel "), "{styled}");
    assert_eq!(styled.matches('\x1b').count(), 2);
}

/// Counts the writes that reach it through the buffer.
struct Counted(std::rc::Rc<std::cell::Cell<usize>>);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.set(self.0.get() + bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn rows_are_not_collected() {
    for format in FORMATS {
        let written = std::rc::Rc::default();
        let mut out = Counted(std::rc::Rc::clone(&written));
        let mut output = Output::new(format, false, "test", &mut out);
        output.list("rows", &["number", "text"]).unwrap();
        let mut most_held = 0;
        for number in 0..50_000 {
            output.row(vec![Value::Integer(number), "x".repeat(40).into()]).unwrap();
            let made = (number as usize + 1) * 40;
            most_held = most_held.max(made.saturating_sub(written.get()));
        }
        assert!(most_held < 200_000, "{format:?}: {most_held}");
        output.finish().unwrap();
        assert!(written.get() > 50_000 * 40);
    }
}

#[test]
fn a_table_keeps_its_columns_after_the_first_page() {
    let text = printed(Format::Table, false, |output| {
        output.list("rows", &["key", "number"])?;
        for number in 0..3000 {
            let key = if number == 2500 { "a longer key than before" } else { "k" };
            output.row(vec![key.into(), Value::Integer(number)])?;
        }
        Ok(())
    });
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[0], lines[3000]), (3001, "key  number", "k      2999"));
    assert_eq!(lines[2501], "a longer key than before    2500");
    let wide = printed(Format::Table, false, |output| {
        output.list("rows", &["key", "number"])?;
        output.row(vec!["日本".into(), Value::Integer(1)])?;
        output.row(vec!["x".repeat(100).into(), Value::Integer(2)])
    });
    let lines: Vec<&str> = wide.lines().collect();
    assert_eq!(lines[1], format!("日本{}1", " ".repeat(WIDEST_AND_GAP - 4)));
    assert_eq!(lines[2], format!("{}       2", "x".repeat(100)));
}

/// The end column of a number of six digits after the widest column.
const WIDEST_AND_GAP: usize = 64 + 2 + 5;

#[test]
fn an_item_is_a_record_to_people_and_a_row_to_scripts() {
    let items = |output: &mut Output<'_>| {
        let item = |n| vec![("file", format!("{n}.sst").into()), ("entries", Value::Count(n))];
        output.items("files", vec![item(1), item(2)])
    };
    assert_eq!(
        printed(Format::Table, false, items),
        "file     1.sst\nentries  1\n\nfile     2.sst\nentries  2\n"
    );
    assert_eq!(printed(Format::Csv, false, items), "file,entries\n1.sst,1\n2.sst,2\n");
    assert_eq!(
        printed(Format::Json, false, |output| output.items("files", Vec::new())),
        "{\"schema\":\"trommel.test.v1\",\n\"files\":[]}\n"
    );
}

/// A buffer that can be read while it is being written.
#[derive(Clone, Default)]
struct Shared(std::rc::Rc<std::cell::RefCell<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn shown_rows_are_not_buffered() {
    for format in FORMATS {
        let (mut out, shown) = (Shared::default(), Shared::default());
        out.0 = std::rc::Rc::clone(&shown.0);
        let mut output = Output::new(format, false, "test", &mut out);
        output.list("costs", &["table"]).unwrap();
        output.row(vec![Value::Integer(4711)]).unwrap();
        output.show().unwrap();
        let text = String::from_utf8(shown.0.borrow().clone()).unwrap();
        assert!(text.contains("4711"), "{format:?}: {text}");
        output.finish().unwrap();
    }
}
