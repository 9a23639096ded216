-- The ledger. {schema} is replaced by the quoted name of the schema.
--
-- Instants are nanoseconds since 1970 on the ledger's clock. version counts the
-- commits of a row; 0 stands for a row that does not exist and is only there to
-- be locked. change is the id of the Change that wrote the row last: it tells,
-- after a connection was lost in a commit, whether the commit was applied. Texts
-- are escaped and shortened where they are not plain (names.go), and compared byte
-- by byte: an update of the machine's locales must not spoil an index.

CREATE TABLE {schema}.operation (
  id          bytea  NOT NULL,
  version     bigint NOT NULL,
  change      bytea  NOT NULL,
  state       text   COLLATE "C" NOT NULL, -- '' with version 0
  tenant      text   COLLATE "C" NOT NULL,
  server      text   COLLATE "C" NOT NULL,
  tool        text   COLLATE "C" NOT NULL,
  task        text   COLLATE "C" NOT NULL, -- '': none
  created     bigint NOT NULL,
  due         bigint,          -- STARTED: null, see lease_end
  lease_token bytea  NOT NULL,
  lease_end   bigint NOT NULL, -- with the marks that extended it; 0: not held
  body        bytea  NOT NULL, -- the record, sealed
  CONSTRAINT mcp_idem_operation_key PRIMARY KEY (id),
  CONSTRAINT mcp_idem_operation_lost_race CHECK (version >= 0)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

CREATE INDEX operation_due  ON {schema}.operation (tenant, server, due, id) WHERE due IS NOT NULL;
CREATE INDEX operation_open ON {schema}.operation (state, id) WHERE state <> 'COMMITTED';
CREATE INDEX operation_task ON {schema}.operation (tenant, task, created, id) WHERE task <> '';

-- Every other kind of row: key is the kind in one byte, then the id.
CREATE TABLE {schema}.entry (
  key     bytea  NOT NULL,
  version bigint NOT NULL,
  change  bytea  NOT NULL,
  body    bytea,               -- sealed; null for a delivery
  members bytea[],             -- of a slot: the open twins
  upto    bigint,              -- of a delivery
  extra   bigint[],            -- of a delivery, ascending
  CONSTRAINT mcp_idem_entry_key PRIMARY KEY (key),
  CONSTRAINT mcp_idem_entry_lost_race CHECK (version >= 0)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

-- One row. The ledger's clock is the server's, and ahead nanoseconds more. It
-- never goes below high, the latest moment that was noted, not even when a
-- server takes over whose clock is behind.
CREATE TABLE {schema}.clock (
  one   boolean PRIMARY KEY DEFAULT true CHECK (one),
  ahead bigint  NOT NULL,
  high  bigint  NOT NULL
);
INSERT INTO {schema}.clock (ahead, high) VALUES (0, 0);

-- For people: the operations with times as times.
CREATE VIEW {schema}.operations AS
SELECT encode(id, 'hex') AS id, version, state, tenant, server, tool, task,
       to_timestamp(created / 1e9) AS created, to_timestamp(due / 1e9) AS due,
       CASE WHEN state = 'STARTED' THEN to_timestamp(lease_end / 1e9) END AS lease_end,
       length(body) AS size
FROM {schema}.operation WHERE version > 0;
