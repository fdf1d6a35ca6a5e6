// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What cyclictest and rtla print at the edges of their formats, and files that lack a part.

use super::*;
use crate::exchange;

const TITLE: &str = "# RTLA timerlat histogram\n# Time unit is microseconds (us)\n";

/// The only column of cyclictest's output.
fn cyclictest(text: &str) -> Result<Column, String> {
    let columns = from_cyclictest(text, None)?;
    let [column] = columns.try_into().unwrap();
    Ok(column)
}

fn why(columns: Vec<Column>) -> String {
    columns.into_iter().next().unwrap().partial.unwrap()
}

#[test]
fn a_count_of_nine_digits_joins_what_stands_before_it() {
    let text = format!(
        "{TITLE}Index   IRQ-003   Thr-003\n3     100000000         0 \n4             0 100000000 \n\
         123456200000000         7 \nover:         0         0 \ncount:300000000 100000007 \n\
         min:          3         4 \navg:      82305         4 \nmax:     123456    123456 \n\
         ALL:        IRQ       Thr\ncount:300000000 100000007 \n"
    );
    let columns = from_rtla(&text).unwrap();
    let counts: Vec<u64> = columns.iter().map(|column| column.latencies.instants()).collect();
    assert_eq!(counts, [300_000_000, 100_000_007]);
    assert!(columns.iter().all(|column| column.partial.is_none()));
    assert_eq!(columns[0].latencies.max_ns(), Some(123_456_000));
}

#[test]
fn a_row_that_parts_in_two_ways_is_refused() {
    let row = "1234561123456789";
    let said = from_rtla(&format!("Index a\n{row} \n")).unwrap_err();
    assert!(said.contains("line 2") && said.contains("put a space between"), "{said}");
    // The row before it leaves one way only.
    let columns = from_rtla(&format!("Index a\n200000 7\n{row} \ncount: 123456796\n")).unwrap();
    assert_eq!(columns[0].latencies.instants(), 123_456_796);
    // So does a count that begins with no 0. A short row has lost a column.
    let one = from_rtla("Index a\n1234561000000000 \ncount:1000000000 \n").unwrap();
    assert_eq!(one[0].latencies.instants(), 1_000_000_000);
    assert!(!from_rtla("Index a b\n7 1\n").unwrap_err().contains("space"));
}

#[test]
fn a_run_that_lies_beyond_the_last_bucket_has_no_row() {
    let text = "# Histogram\n# Min Latencies: 00051 00060\n# Avg Latencies: 00060 00070\n\
                # Max Latencies: 00093 00095 00095\n# Histogram Overflows: 01000 00002 01002\n";
    let columns = from_cyclictest(text, None).unwrap();
    assert_eq!(names(&columns), ["thread-0", "thread-1"]);
    let latencies = &columns[0].latencies;
    assert_eq!((latencies.instants(), latencies.max_ns()), (1000, Some(93_000)));
    assert_eq!(latencies.quantile(2), Quantile::AtLeast { ns: 51_000 });
    assert!(columns.iter().all(|column| column.partial.is_none()));
    let none = text.replace("01000 00002 01002", "00000 00000");
    assert!(from_cyclictest(&none, None).unwrap_err().contains("no bucket and no overflow"));
}

#[test]
fn what_moves_the_cursor_is_no_row() {
    let shown = "policy: fifo: loadavg: 0.00 1/100 123          \n\n\
                 T: 0 (  123) P:80 I:1000 C:      1 Min:      3 Act:    3 Avg:    3 Max:       3\n";
    let rows = "# Histogram\n000003 000002\n# Histogram Overflows: 00000\n";
    let text = format!("{shown}\u{1b}[3A{shown}\u{1b}[3A{rows}");
    assert_eq!(cyclictest(&text).unwrap().latencies.instants(), 2);
    assert!(cyclictest("\u{1b}[3Ahello\n").unwrap_err().contains("hello"));
}

#[test]
fn a_last_line_without_its_end_is_not_counted() {
    let text =
        format!("{TITLE}Index a\n3 1\n255 1\nover: 2\ncount: 4\nmin: 3\navg: 4000\nmax: 971");
    let [column] = from_rtla(&text).unwrap().try_into().unwrap();
    assert!(column.partial.unwrap().contains("its last line has no end"));
    // The number may be 9713.
    assert_eq!((column.latencies.instants(), column.latencies.max_ns()), (4, None));
    assert!(from_rtla(&format!("{text}3\nALL:  a")).unwrap()[0].partial.is_none());
    let column = cyclictest("000003 000002\n000004 0000").unwrap();
    assert_eq!(column.latencies.instants(), 2);
    assert!(column.partial.unwrap().contains("its last line has no end"));
}

#[test]
fn cyclictest_is_whole_where_no_digit_can_be_missing() {
    let rows = "000003 000002\t000001\n# Min Latencies: 00003 00003\n# Histogram Overflows: ";
    let is_whole =
        |end: &str| from_cyclictest(&format!("{rows}{end}"), None).unwrap()[0].partial.is_none();
    for end in ["00000 00000", "00000 00000\n", "00000 00000\n# Thread 0:", "1 2\n"] {
        assert!(is_whole(end), "{end:?}");
    }
    for end in ["00000 0000", "00000", "00000 12345", "00000\n", ""] {
        assert!(!is_whole(end), "{end:?}");
    }
    let said = |end: &str| why(from_cyclictest(&format!("{rows}{end}"), None).unwrap());
    assert!(said("00000\n").contains("lacks a thread"));
    assert!(said("00000 0000").contains("its last line has no end"));
    assert!(why(from_cyclictest("000003 000002\n", None).unwrap()).contains("it has no line"));
}

#[test]
fn the_caller_says_the_unit_where_rtla_does_not() {
    let table = "Index a\n3100 1\ncount: 1\nmax: 3100\n";
    let max_ns = |text: &str, unit_ns| {
        exchange::from_rtla(text, unit_ns).map(|columns| columns[0].latencies.max_ns().unwrap())
    };
    let said = max_ns(table, None).unwrap_err();
    assert!(said.contains("does not say its unit") && said.contains("--unit ns"), "{said}");
    assert_eq!(max_ns(table, Some(1)), Ok(3_100));
    let with = format!("{TITLE}{table}");
    assert_eq!((max_ns(&with, None), max_ns(&with, Some(1000))), (Ok(3_100_000), Ok(3_100_000)));
    assert!(max_ns(&with, Some(1)).unwrap_err().contains("leave --unit out"));
}

#[test]
fn a_second_table_is_not_dropped() {
    let table = "Index a\n3 1\ncount: 1\nmax: 3\n";
    let whole = format!("{TITLE}{table}");
    for (text, line) in [
        (format!("{whole}ALL: a\nmax: 3\n{whole}"), 9),
        (format!("{table}{table}"), 5),
        (format!("{TITLE}Index a\n3 1\n{whole}"), 5),
    ] {
        let said = from_rtla(&text).unwrap_err();
        assert!(said.contains(&format!("line {line}: a second table begins")), "{said}");
    }
    // Where empty rows are left out the second may go on where the first ended.
    let one = |us: u64| format!("# Histogram\n{us:06} 000002\n# Histogram Overflows: 00000\n");
    let said = cyclictest(&(one(3) + &one(4))).unwrap_err();
    assert!(said.contains("line 4: a second histogram"), "{said}");
}

#[test]
fn the_sum_of_one_thread_is_no_thread() {
    let rows = "# Histogram\n000003 000002\t000002\n000004 000007\t000007\n";
    let cut = cyclictest(rows).unwrap();
    assert!(cut.partial.unwrap().contains("the sum of all, is no run"));
    assert_eq!((cut.name.as_str(), cut.latencies.instants()), ("thread-0", 9));
    let end = "# Min Latencies: 00003\n# Histogram Overflows: 00000\n";
    assert!(cyclictest(&format!("{rows}{end}")).unwrap().partial.is_none());
    // Two overflows are of two threads.
    let two = from_cyclictest(&format!("{rows}# Histogram Overflows: 00000 00000\n"), None);
    assert_eq!(names(&two.unwrap()), ["thread-0", "thread-1"]);
}

#[test]
fn an_index_without_a_column_says_so() {
    let said = from_rtla(&format!("{TITLE}Index\nover:\ncount:\nmin:\navg:\nmax:\n")).unwrap_err();
    assert!(said.contains("line 3: `Index` has no column"), "{said}");
}

#[test]
fn a_shortest_and_an_average_that_the_rows_contradict_are_refused() {
    let of = |min: u64, avg: u64, max: u64, overflow: u64| {
        let rows = "000003 000002\n000004 000001\n000009 000000\n";
        cyclictest(&format!(
            "{rows}# Min Latencies: {min:05}\n# Avg Latencies: {avg:05}\n\
             # Max Latencies: {max:05}\n# Histogram Overflows: {overflow:05}\n"
        ))
    };
    // Three of 3, 3 and 4; with one more, of 10 to 90, on average 5 to 25.
    assert!(of(3, 3, 4, 0).is_ok() && of(3, 5, 90, 1).is_ok() && of(3, 25, 90, 1).is_ok());
    for (min, word) in [(1, "minimum 1"), (4, "minimum 4")] {
        assert!(of(min, 3, 4, 0).is_err_and(|said| said.contains(word)), "{min}");
    }
    for (avg, max, overflow) in [(1, 4, 0), (4, 4, 0), (3, 90, 1), (26, 90, 1)] {
        let said = of(3, avg, max, overflow);
        assert!(said.is_err_and(|said| said.contains(&format!("`Avg` says {avg}"))), "{avg}");
    }
}
