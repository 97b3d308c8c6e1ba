CREATE TABLE audit (
        number BIGINT PRIMARY KEY,
        time_ms BIGINT NOT NULL,
        actor TEXT NOT NULL,
        action TEXT NOT NULL,
        detail TEXT NOT NULL,
        hash TEXT NOT NULL
    );
CREATE TABLE changes (
        number BIGINT PRIMARY KEY,
        event TEXT NOT NULL REFERENCES events (id),
        what TEXT NOT NULL,
        time_ms BIGINT NOT NULL,
        document TEXT NOT NULL
    );
CREATE INDEX changes_by_event ON changes (event);
CREATE TABLE competitions (
        number BIGINT PRIMARY KEY,
        time_ms BIGINT NOT NULL,
        document TEXT NOT NULL
    );
CREATE TABLE deliveries (receiver TEXT PRIMARY KEY, delivered BIGINT NOT NULL);
CREATE TABLE diagnoses (
        number BIGINT PRIMARY KEY,
        kind TEXT NOT NULL,
        is_anomalous BIGINT NOT NULL,
        comment TEXT NOT NULL,
        actor TEXT NOT NULL,
        time_ms BIGINT NOT NULL,
        window_ms BIGINT NOT NULL,
        windows TEXT NOT NULL,
        removed_ms BIGINT,
        removed_by TEXT
    );
CREATE TABLE events (
        id TEXT PRIMARY KEY,
        model TEXT NOT NULL,
        node TEXT,
        start_ms BIGINT NOT NULL,
        opened_ms BIGINT NOT NULL,
        end_ms BIGINT,
        strength DOUBLE PRECISION NOT NULL,
        jobs TEXT NOT NULL,
        document TEXT NOT NULL,
        embedding BYTEA NOT NULL
    , hidden_by BIGINT);
CREATE INDEX events_by_opening ON events (opened_ms, id);
CREATE TABLE exclusions (
        number BIGINT PRIMARY KEY,
        node TEXT,
        from_ms BIGINT NOT NULL,
        to_ms BIGINT NOT NULL,
        reason TEXT NOT NULL,
        actor TEXT NOT NULL,
        time_ms BIGINT NOT NULL,
        removed_ms BIGINT
    );
CREATE TABLE models (
        version TEXT PRIMARY KEY,
        number BIGINT NOT NULL UNIQUE,
        document TEXT NOT NULL
    );
CREATE TABLE promotions (
        number BIGINT PRIMARY KEY,
        alias TEXT NOT NULL,
        version TEXT NOT NULL REFERENCES models (version),
        what TEXT NOT NULL,
        time_ms BIGINT NOT NULL,
        actor TEXT NOT NULL,
        reason TEXT NOT NULL
    );
CREATE TABLE regions (
        verdict BIGINT NOT NULL REFERENCES verdicts (number),
        model TEXT NOT NULL,
        document TEXT NOT NULL,
        PRIMARY KEY (verdict, model)
    );
CREATE TABLE schema_version (version BIGINT NOT NULL);
CREATE TABLE sessions (
        hash TEXT PRIMARY KEY,
        actor TEXT NOT NULL,
        role TEXT NOT NULL,
        token TEXT REFERENCES tokens (id),
        expires_ms BIGINT NOT NULL
    );
CREATE TABLE shadow_events (
        model TEXT NOT NULL,
        id TEXT NOT NULL,
        opened_ms BIGINT NOT NULL,
        document TEXT NOT NULL,
        PRIMARY KEY (model, id)
    );
CREATE TABLE shadows (
        model TEXT PRIMARY KEY,
        from_ms BIGINT NOT NULL,
        to_ms BIGINT NOT NULL,
        scored_ms BIGINT NOT NULL
    );
CREATE TABLE silences (
        receiver TEXT NOT NULL,
        verdict BIGINT NOT NULL REFERENCES verdicts (number),
        id TEXT NOT NULL,
        PRIMARY KEY (receiver, verdict)
    );
CREATE TABLE tokens (
        id TEXT PRIMARY KEY,
        hash TEXT NOT NULL UNIQUE,
        name TEXT NOT NULL,
        role TEXT NOT NULL,
        nodes TEXT NOT NULL,
        created_ms BIGINT NOT NULL,
        revoked_ms BIGINT
    );
CREATE TABLE verdicts (
        number BIGINT PRIMARY KEY,
        event TEXT NOT NULL REFERENCES events (id),
        answer TEXT NOT NULL,
        kind TEXT,
        comment TEXT NOT NULL,
        actor TEXT NOT NULL,
        time_ms BIGINT NOT NULL,
        scope TEXT NOT NULL,
        expires_ms BIGINT NOT NULL,
        undone_ms BIGINT,
        undone_by TEXT
    );
CREATE INDEX verdicts_by_event ON verdicts (event);
