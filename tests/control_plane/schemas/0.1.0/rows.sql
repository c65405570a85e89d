-- A mesh of a node and a router, as 0.1.0 wrote it, and one more node that waits for an admin. Blobs are X'hex'.
INSERT INTO keyring (id, private_key, created_at) VALUES (1, X'000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f', 1799990000000);
INSERT INTO bootstrap_tokens (id, role, max_usages, usages_count, description, created_at, expires_at, revoked_at)
VALUES ('a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1', 'mesh:role:node', 5, 1, 'for the lab', 1799990000000, 1800090000000, NULL);
INSERT INTO bootstrap_tokens (id, role, max_usages, usages_count, description, created_at, expires_at, revoked_at)
VALUES ('b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2', 'mesh:role:router', 1, 1, '', 1799990000000, 1800090000000, 1799995000000);
INSERT INTO enrollment_requests (id, peer_id, token_id, role, labels_json, status, created_at, resolved_at)
VALUES (1, '12D3KooW9pNAk8aiBuGVQtWRdbkLmo5qVL3e2h5UxbN2Nz9ttwix', 'a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1', 'mesh:role:node', '{"region":"eu"}', 'approved', 1799991000000, 1799991000250);
INSERT INTO enrollment_requests (id, peer_id, token_id, role, labels_json, status, created_at, resolved_at)
VALUES (2, '12D3KooW9pNAk8aiBuGVQtWRdbkLmo5qVL3e2h5UxbN2Nz9ttwiy', 'b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2', 'mesh:role:router', '{}', 'approved', 1799992000000, 1799992000000);
INSERT INTO enrollment_requests (id, peer_id, token_id, role, labels_json, status, created_at, resolved_at)
VALUES (3, '12D3KooW9pNAk8aiBuGVQtWRdbkLmo5qVL3e2h5UxbN2Nz9ttwiz', 'a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1', 'mesh:role:node', '{}', 'pending', 1799993000000, NULL);
INSERT INTO nodes (peer_id, role, labels_json, enrolled_at, biscuit_token, expires_at, issued_for)
VALUES ('12D3KooW9pNAk8aiBuGVQtWRdbkLmo5qVL3e2h5UxbN2Nz9ttwix', 'mesh:role:node', '{"region":"eu"}', 1799991000250, X'0a0b0c', 1800077000000, 'request 1');
INSERT INTO nodes (peer_id, role, labels_json, enrolled_at, biscuit_token, expires_at, issued_for)
VALUES ('12D3KooW9pNAk8aiBuGVQtWRdbkLmo5qVL3e2h5UxbN2Nz9ttwiy', 'mesh:role:router', '{}', 1799992000000, X'0d0e0f', 1800078000000, 'request 2');
INSERT INTO routers (peer_id, multiaddresses, last_lease_renewal, expires_at, connected_peers, dht_size, connections,
  connection_limit)
VALUES ('12D3KooW9pNAk8aiBuGVQtWRdbkLmo5qVL3e2h5UxbN2Nz9ttwiy', '["/ip4/10.0.0.1/tcp/4001/p2p/12D3KooW9pNAk8aiBuGVQtWRdbkLmo5qVL3e2h5UxbN2Nz9ttwiy"]', 1799999000000, 1800000900000, 7, 70, 9, 100);
