//! `tracewise token`

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::Context;
use lifecycle::{NewToken, Role, Token};
use serde_json::json;
use tempfile::NamedTempFile;
use workload::Timestamp;

use super::{actor, open_store, runtime};
use crate::args::TokenCommand;
use crate::config::Config;
use crate::output::{eprint_note, print, print_json, print_table};
use crate::times::show_time;

pub fn run(command: TokenCommand, config: &Config) -> anyhow::Result<ExitCode> {
    runtime()?.block_on(async {
        let now = Timestamp::from(SystemTime::now());
        match command {
            TokenCommand::Add { name, role, nodes, initial, store, json } => {
                anyhow::ensure!(
                    nodes.is_empty() || role == Role::Ingest,
                    "--node is for the role ingest; a {role} sees all nodes"
                );
                let store = open_store(&store, config).await?;
                if initial.is_some() && (config.serve.login.is_on() || store.has_tokens().await?) {
                    return Ok(ExitCode::SUCCESS);
                }
                // Before there is a token that nobody would know.
                let file = initial.map(SecretFile::create).transpose()?;
                let (token, secret) = store.add_token(&NewToken { name, role, nodes }, &actor(), now).await?;
                if let Some(file) = file {
                    let path = file.write(secret.reveal())?;
                    eprint_note(&format!("the first token, of a {role}, is in {}", path.display()));
                } else if json {
                    print_json(&json!({ "id": token.id, "role": token.role, "token": secret.reveal() }))?;
                } else {
                    eprint_note("this token is shown once; send it as `Authorization: Bearer …`");
                    print(secret.reveal())?;
                }
            }
            TokenCommand::List { store, json } => {
                let tokens = open_store(&store, config).await?.tokens().await?;
                if json { print_json(&json!(tokens))? } else { print_tokens(&tokens)? }
            }
            TokenCommand::Revoke { id, store } => {
                open_store(&store, config).await?.revoke_token(&id, &actor(), now).await?;
                print(&format!("token {id} is revoked"))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// A file that only its owner can read, and that is there only when it is complete.
struct SecretFile {
    path: PathBuf,
    temporary: NamedTempFile,
}

impl SecretFile {
    fn create(path: PathBuf) -> anyhow::Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // Temporary files have the mode 0600.
        let temporary = NamedTempFile::new_in(folder).with_context(|| folder.display().to_string())?;
        Ok(Self { path, temporary })
    }

    fn write(mut self, secret: &str) -> anyhow::Result<PathBuf> {
        let mut write = || {
            writeln!(self.temporary, "{secret}")?;
            self.temporary.as_file().sync_all()
        };
        write().with_context(|| self.path.display().to_string())?;
        self.temporary.persist(&self.path).with_context(|| self.path.display().to_string())?;
        Ok(self.path)
    }
}

fn print_tokens(tokens: &[Token]) -> anyhow::Result<()> {
    let row = |token: &Token| {
        let nodes: Vec<&str> = token.nodes.iter().map(|node| node.as_str()).collect();
        let nodes = if nodes.is_empty() { "all".to_owned() } else { nodes.join(",") };
        let state =
            token.revoked.map_or("in force".to_owned(), |time| format!("revoked {}", show_time(time)));
        vec![
            token.id.clone(),
            token.role.to_string(),
            nodes,
            show_time(token.created),
            state,
            token.name.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = tokens.iter().map(row).collect();
    print_table(&["ID", "ROLE", "NODES", "CREATED", "STATE", "NAME"], &rows)
}
