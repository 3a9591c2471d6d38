//! Accounts between which amounts are moved, each time in a serializable transaction.

use trommel_harness::StoreError;

/// A store whose values are balances: a number in the first eight bytes, the rest is padding.
pub(crate) trait Accounts: Send + Sync {
    /// Creates an account.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError>;

    /// Moves 1 from one account to another in one transaction, which is tried again after each
    /// conflict; returns the number of conflicts.
    fn transfer(&self, from: &[u8], to: &[u8]) -> Result<u64, StoreError>;

    /// The balance of an account.
    fn balance(&self, key: &[u8]) -> Result<u64, StoreError>;
}

/// An account of `bytes` bytes with this balance.
pub(crate) fn account(balance: u64, bytes: usize) -> Vec<u8> {
    let mut value = vec![0x61; bytes.max(8)];
    value[..8].copy_from_slice(&balance.to_le_bytes());
    value
}

/// The balance of a value that a store returned.
pub(super) fn balance_of(value: Option<impl AsRef<[u8]>>) -> Result<u64, StoreError> {
    let value = value.as_ref().and_then(|value| value.as_ref().first_chunk());
    Ok(u64::from_le_bytes(*value.ok_or("an account is gone")?))
}

/// Both values of a transfer.
pub(super) fn moved(
    from: Option<impl AsRef<[u8]>>,
    to: Option<impl AsRef<[u8]>>,
) -> Result<[Vec<u8>; 2], StoreError> {
    let (Some(from), Some(to)) = (from, to) else { return Err("an account is gone".into()) };
    let [lower, higher] = [balance_of(Some(&from))?, balance_of(Some(&to))?];
    Ok([
        account(lower.wrapping_sub(1), from.as_ref().len()),
        account(higher.wrapping_add(1), to.as_ref().len()),
    ])
}
