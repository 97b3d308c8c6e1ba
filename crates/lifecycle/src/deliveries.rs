//! How far each receiver has been told: the number of the last item that it accepted.

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

    /// The number of the last item that a receiver accepted. A receiver that is new starts with the first item.
    pub async fn delivered_since_the_first(&self, receiver: &str) -> Result<i64, StoreError> {
        let row = sqlx::query("SELECT delivered FROM deliveries WHERE receiver = $1")
            .bind(receiver)
            .fetch_optional(self.readers())
            .await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?.unwrap_or(0))
    }

    /// Notes that a receiver accepted all items up to a number.
    pub async fn set_delivered(&self, receiver: &str, number: i64) -> Result<(), StoreError> {
        let mut connection = self.writer().await?;
        let statement = "INSERT INTO deliveries (receiver, delivered) VALUES ($1, $2)
             ON CONFLICT (receiver) DO UPDATE SET delivered = excluded.delivered
             WHERE deliveries.delivered < excluded.delivered";
        sqlx::query(statement).bind(receiver).bind(number).execute(&mut *connection).await?;
        Ok(())
    }
}
