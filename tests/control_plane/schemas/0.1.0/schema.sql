-- What 0.1.0 made on SQLite.

CREATE TABLE keyring (
  id INTEGER NOT NULL,
  private_key BLOB NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (id)
);
CREATE TABLE nodes (
  peer_id VARCHAR(128) NOT NULL,
  role VARCHAR(128) NOT NULL,
  labels_json TEXT NOT NULL,
  enrolled_at BIGINT NOT NULL,
  biscuit_token BLOB NOT NULL,
  expires_at BIGINT NOT NULL,
  issued_for VARCHAR(128) NOT NULL,
  PRIMARY KEY (peer_id)
);
CREATE TABLE routers (
  peer_id VARCHAR(128) NOT NULL,
  multiaddresses TEXT NOT NULL,
  last_lease_renewal BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  connected_peers BIGINT NOT NULL,
  dht_size BIGINT NOT NULL,
  connections BIGINT NOT NULL,
  connection_limit BIGINT NOT NULL,
  PRIMARY KEY (peer_id)
);
CREATE INDEX ix_routers_expires_at ON routers (expires_at);
CREATE TABLE bootstrap_tokens (
  id VARCHAR(64) NOT NULL,
  role VARCHAR(128) NOT NULL,
  max_usages BIGINT NOT NULL,
  usages_count BIGINT NOT NULL,
  description TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  revoked_at BIGINT,
  PRIMARY KEY (id)
);
CREATE TABLE enrollment_requests (
  id INTEGER NOT NULL,
  peer_id VARCHAR(128) NOT NULL,
  token_id VARCHAR(64) NOT NULL,
  role VARCHAR(128) NOT NULL,
  labels_json TEXT NOT NULL,
  status VARCHAR(16) NOT NULL,
  created_at BIGINT NOT NULL,
  resolved_at BIGINT,
  PRIMARY KEY (id),
  UNIQUE (peer_id)
);
CREATE INDEX enrollment_requests_by_token ON enrollment_requests (token_id, status);
