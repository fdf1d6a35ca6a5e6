// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How many are open, and what was read and written.

use super::*;

#[test]
fn users_open_some_files_and_root_opens_any_number() {
    let mut all = Open::default();
    let open = |all: &mut Open, uid: u32| all.add(7, uid).map_err(|error| error.code());
    for number in 0..MOST {
        open(&mut all, 1000 + (number / MOST_OF_USER) as u32).unwrap();
    }
    assert_eq!(open(&mut all, 2000), Err(Errno::ENFILE.code()));
    for _ in 0..2 * MOST {
        open(&mut all, 0).unwrap();
    }
    all.files.retain(|_, one| one.uid == 1000);
    assert_eq!(open(&mut all, 1000), Err(Errno::EMFILE.code()));
    let last = open(&mut all, 2000).unwrap();
    all.close(last);
    assert_eq!(all.get(last).err().map(|error| error.code()), Some(Errno::EBADF.code()));
}

#[test]
fn a_text_is_seen_when_it_was_read_to_its_end() {
    let mut file = OpenFile::new(7, 0);
    let text: Arc<str> = "12345".into();
    assert_eq!(file.piece(&text, 0, 4), b"1234");
    assert_eq!(file.seen, None);
    assert_eq!(file.text(4), Some(Arc::clone(&text)));
    assert_eq!(file.piece(&text, 4, 4), b"5");
    assert_eq!(file.seen, Some(sum_of(&text)));
    assert_eq!(file.piece(&text, 5, 4), b"");
    assert_eq!((file.text(5).as_deref(), file.text(0)), (Some(""), None));
}

#[test]
fn where_a_number_may_be_cut_nothing_more_is_taken() {
    let cut = |writes: &[&str]| {
        let mut file = OpenFile::new(7, 0);
        writes.iter().map(|text| file.is_cut(text.as_bytes(), 4096)).collect::<Vec<_>>()
    };
    let long = "1 ".repeat(2000);
    assert_eq!(cut(&["12", "12\n", &long, ""]), [false; 4]);
    assert_eq!(cut(&[&format!("{long}12"), "34\n"]), [true; 2]);
    assert_eq!(cut(&[&"1".repeat(1023), &"1".repeat(1024)]), [false, true]);
    assert_eq!(cut(&[&" ".repeat(4097), "1\n"]), [true; 2]);
}
