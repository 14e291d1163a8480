-- A store of version 1, as the release before calls of writes left it (30d6e17): never edited.
PRAGMA application_id = 1397773384;
BEGIN TRANSACTION;
CREATE TABLE adopted (seq INTEGER NOT NULL, at INTEGER NOT NULL, reason TEXT NOT NULL) STRICT;
CREATE TABLE heads (
    seq INTEGER PRIMARY KEY,
    thread_id TEXT NOT NULL,
    checkpoint_ns TEXT NOT NULL,
    checkpoint_id TEXT NOT NULL,
    kind INTEGER NOT NULL,
    mac BLOB NOT NULL,
    at INTEGER NOT NULL
) STRICT;
INSERT INTO "heads" VALUES(1,'t','','1',0,X'61616161616161616161616161616161',1795430959);
INSERT INTO "heads" VALUES(2,'t','','2',0,X'62626262626262626262626262626262',1795430959);
INSERT INTO "heads" VALUES(3,'t','','1',2,X'',1795430959);
INSERT INTO "heads" VALUES(4,'u','n','1',0,X'63636363636363636363636363636363',1795430959);
CREATE TABLE identities (identity TEXT NOT NULL) STRICT;
INSERT INTO "identities" VALUES('41e78e4d30989cfa5c43f481622a341c');
CREATE TABLE store (
    version INTEGER NOT NULL,
    identity TEXT NOT NULL,
    raised INTEGER NOT NULL,
    trimmed INTEGER NOT NULL
) STRICT;
INSERT INTO "store" VALUES(1,'41e78e4d30989cfa5c43f481622a341c',0,0);
CREATE INDEX heads_by_checkpoint ON heads (thread_id, checkpoint_ns, checkpoint_id);
COMMIT;