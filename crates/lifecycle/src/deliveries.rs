//! How far each receiver of alerts has been told: the number of the last change that it accepted.

use sqlx::Row;

use crate::store::{Store, StoreError};

impl Store {
    /// The number of the last change that a receiver accepted. A receiver that is new starts with the changes to come.
    pub async fn delivered(&self, receiver: &str) -> Result<i64, StoreError> {
        let mut connection = self.writer().await?;
        sqlx::query(
            "INSERT INTO deliveries (receiver, delivered)
             SELECT $1, COALESCE(MAX(number), 0) FROM changes WHERE true
             ON CONFLICT (receiver) DO NOTHING",
        )
        .bind(receiver)
        .execute(&mut *connection)
        .await?;
        let row = sqlx::query("SELECT delivered FROM deliveries WHERE receiver = $1")
            .bind(receiver)
            .fetch_one(&mut *connection)
            .await?;
        Ok(row.try_get(0)?)
    }

    /// Notes that a receiver accepted all changes up to a number.
    pub async fn set_delivered(&self, receiver: &str, number: i64) -> Result<(), StoreError> {
        let mut connection = self.writer().await?;
        sqlx::query("UPDATE deliveries SET delivered = $2 WHERE receiver = $1 AND delivered < $2")
            .bind(receiver)
            .bind(number)
            .execute(&mut *connection)
            .await?;
        Ok(())
    }
}
