//! Access: tokens for programs, and sessions for browsers. Both are random secrets of which only the hash is stored.

use std::fmt;
use std::str::FromStr;

use learn::artifact::hexadecimal;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use sqlx::{Connection, Row};
use workload::{Millis, NodeName, Timestamp};

use crate::audit;
use crate::store::{Store, StoreError};

/// What secrets begin with, so that scanners of repositories find them.
const PREFIX: &str = "tw_";
const N_SECRET_BYTES: usize = 24;
/// Hexadecimal digits of a checksum at the end of a secret, which tells a typing error from a wrong secret.
const N_CHECK_DIGITS: usize = 6;

/// What a client may do. A later role may do all that the earlier ones of the same row in the route table may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Sends readings of its nodes, and nothing else.
    Ingest,
    /// Reads.
    Viewer,
    /// Reads, and gives verdicts on events.
    Vetter,
    /// Everything, including tokens and models.
    Admin,
}

impl Role {
    pub const ALL: [Self; 4] = [Self::Ingest, Self::Viewer, Self::Vetter, Self::Admin];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Ingest => "ingest",
            Self::Viewer => "viewer",
            Self::Vetter => "vetter",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|role| role.name() == text);
        found.ok_or_else(|| format!("there is no role {text:?}; roles are ingest, viewer, vetter and admin"))
    }
}

/// A secret that is shown once.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Secret {
    /// A new random secret.
    pub fn random() -> Result<Self, StoreError> {
        let mut bytes = [0; N_SECRET_BYTES];
        let filled = SystemRandom::new().fill(&mut bytes);
        filled.map_err(|_| StoreError::Damaged("the system has no random numbers".into()))?;
        let body = hexadecimal(&bytes);
        Ok(Self(format!("{PREFIX}{body}{}", check_digits(&body))))
    }

    /// A secret that a client sent; `None` if it cannot be one.
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(PREFIX)?;
        let (body, check) = rest.split_at_checked(2 * N_SECRET_BYTES)?;
        (check_digits(body) == check).then(|| Self(text.to_owned()))
    }

    /// The secret itself, to be shown or sent.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    fn hash(&self) -> String {
        hexadecimal(&Sha256::digest(self.0.as_bytes()))
    }
}

fn check_digits(body: &str) -> String {
    let mut digits = hexadecimal(&Sha256::digest(body.as_bytes()));
    digits.truncate(N_CHECK_DIGITS);
    digits
}

/// A token to be created.
#[derive(Debug, Clone)]
pub struct NewToken {
    pub name: String,
    pub role: Role,
    /// The nodes that it may send readings of; empty for all. Only for [`Role::Ingest`].
    pub nodes: Vec<NodeName>,
}

/// A token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Token {
    pub id: String,
    pub name: String,
    pub role: Role,
    pub nodes: Vec<NodeName>,
    pub created: Timestamp,
    pub revoked: Option<Timestamp>,
}

/// A browser that has logged in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub actor: String,
    pub role: Role,
    pub expires: Timestamp,
}

impl Store {
    /// Creates a token. Its secret is returned and not stored.
    pub async fn add_token(
        &self,
        new: &NewToken,
        actor: &str,
        now: Timestamp,
    ) -> Result<(Token, Secret), StoreError> {
        let secret = Secret::random()?;
        let token = Token {
            id: secret.hash()[..8].to_owned(),
            name: new.name.clone(),
            role: new.role,
            nodes: new.nodes.clone(),
            created: now,
            revoked: None,
        };
        let mut connection = self.writer().await?;
        let mut transaction = connection.begin().await?;
        sqlx::query(
            "INSERT INTO tokens (id, hash, name, role, nodes, created_ms) VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .bind(&token.id)
        .bind(secret.hash())
        .bind(&token.name)
        .bind(token.role.name())
        .bind(to_json(&token.nodes)?)
        .bind(token.created.0)
        .execute(&mut *transaction)
        .await?;
        let detail = format!("{} {} {}", token.id, token.role, token.name);
        audit::append(&mut transaction, now, actor, "add token", &detail).await?;
        transaction.commit().await?;
        Ok((token, secret))
    }

    /// All tokens, the oldest first.
    pub async fn tokens(&self) -> Result<Vec<Token>, StoreError> {
        let rows =
            sqlx::query("SELECT * FROM tokens ORDER BY created_ms, id").fetch_all(self.readers()).await?;
        rows.iter().map(token).collect()
    }

    /// Revokes a token and the sessions that were opened with it.
    pub async fn revoke_token(&self, id: &str, actor: &str, now: Timestamp) -> Result<(), StoreError> {
        let mut connection = self.writer().await?;
        let mut transaction = connection.begin().await?;
        let done = sqlx::query("UPDATE tokens SET revoked_ms = $2 WHERE id = $1 AND revoked_ms IS NULL")
            .bind(id)
            .bind(now.0)
            .execute(&mut *transaction)
            .await?;
        if done.rows_affected() == 0 {
            return Err(StoreError::NotFound { what: format!("token {id} that is in force") });
        }
        sqlx::query("DELETE FROM sessions WHERE token = $1").bind(id).execute(&mut *transaction).await?;
        audit::append(&mut transaction, now, actor, "revoke token", id).await?;
        Ok(transaction.commit().await?)
    }

    /// The token of a secret, if it is in force.
    pub async fn token_of(&self, secret: &Secret) -> Result<Option<Token>, StoreError> {
        let row = sqlx::query("SELECT * FROM tokens WHERE hash = $1 AND revoked_ms IS NULL")
            .bind(secret.hash())
            .fetch_optional(self.readers())
            .await?;
        row.as_ref().map(token).transpose()
    }

    /// Whether any token is in force.
    pub async fn has_tokens(&self) -> Result<bool, StoreError> {
        let row = sqlx::query("SELECT COUNT(*) FROM tokens WHERE revoked_ms IS NULL")
            .fetch_one(self.readers())
            .await?;
        Ok(row.try_get::<i64, _>(0)? > 0)
    }

    /// Opens a session for a browser. `token` is the id of the token it logged in with, if it did.
    pub async fn open_session(
        &self,
        actor: &str,
        role: Role,
        token: Option<&str>,
        now: Timestamp,
        length: Millis,
    ) -> Result<Secret, StoreError> {
        let secret = Secret::random()?;
        let mut connection = self.writer().await?;
        let mut transaction = connection.begin().await?;
        sqlx::query("DELETE FROM sessions WHERE expires_ms <= $1")
            .bind(now.0)
            .execute(&mut *transaction)
            .await?;
        sqlx::query(
            "INSERT INTO sessions (hash, actor, role, token, expires_ms) VALUES ($1, $2, $3, $4, $5)",
        )
        .bind(secret.hash())
        .bind(actor)
        .bind(role.name())
        .bind(token)
        .bind((now + length).0)
        .execute(&mut *transaction)
        .await?;
        audit::append(&mut transaction, now, actor, "log in", role.name()).await?;
        transaction.commit().await?;
        Ok(secret)
    }

    /// The session of a secret, if it has not expired.
    pub async fn session_of(&self, secret: &Secret, now: Timestamp) -> Result<Option<Session>, StoreError> {
        let row =
            sqlx::query("SELECT actor, role, expires_ms FROM sessions WHERE hash = $1 AND expires_ms > $2")
                .bind(secret.hash())
                .bind(now.0)
                .fetch_optional(self.readers())
                .await?;
        let session = |row: sqlx::any::AnyRow| {
            Ok(Session {
                actor: row.try_get(0)?,
                role: parsed(&row.try_get::<String, _>(1)?)?,
                expires: Timestamp(row.try_get(2)?),
            })
        };
        row.map(session).transpose()
    }

    /// Ends a session.
    pub async fn close_session(&self, secret: &Secret) -> Result<(), StoreError> {
        let mut connection = self.writer().await?;
        sqlx::query("DELETE FROM sessions WHERE hash = $1")
            .bind(secret.hash())
            .execute(&mut *connection)
            .await?;
        Ok(())
    }
}

fn token(row: &sqlx::any::AnyRow) -> Result<Token, StoreError> {
    let nodes: String = row.try_get("nodes")?;
    Ok(Token {
        id: row.try_get("id")?,
        name: row.try_get("name")?,
        role: parsed(&row.try_get::<String, _>("role")?)?,
        nodes: serde_json::from_str(&nodes).map_err(|error| StoreError::Damaged(error.to_string()))?,
        created: Timestamp(row.try_get("created_ms")?),
        revoked: row.try_get::<Option<i64>, _>("revoked_ms")?.map(Timestamp),
    })
}

fn parsed(role: &str) -> Result<Role, StoreError> {
    role.parse().map_err(StoreError::Damaged)
}

pub fn to_json(value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Damaged(error.to_string()))
}
