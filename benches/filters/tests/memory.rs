//! Tests the counting allocator alone in its process: any other allocation would be counted too.

use trommel_filters::memory::most_taken;

#[test]
fn the_most_is_counted_though_it_is_given_back() {
    let (kept, most) = most_taken(|| {
        drop(vec![1_u8; 3 << 20]);
        let mut grown = vec![0_u8; 1 << 20];
        grown.reserve_exact(1 << 20);
        grown
    });
    // While it grows it exists twice for a moment: one MiB and two.
    assert!((3 << 20..(3 << 20) + 4096).contains(&most), "{most}");
    let (_, most) = most_taken(|| drop(kept));
    assert_eq!(most, 0);
}
