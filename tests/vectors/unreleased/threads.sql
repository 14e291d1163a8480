CREATE TABLE {schema}store (version integer NOT NULL, identity text NOT NULL, raised bigint NOT NULL, trimmed bigint NOT NULL);
CREATE TABLE {schema}identities (identity text PRIMARY KEY);
CREATE TABLE {schema}adopted (seq bigint NOT NULL, at bigint NOT NULL, reason text NOT NULL);
CREATE TABLE {schema}heads (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, thread_id bytea NOT NULL, checkpoint_ns bytea NOT NULL, checkpoint_id bytea NOT NULL, kind smallint NOT NULL, mac bytea NOT NULL, at bigint NOT NULL);
CREATE INDEX heads_by_checkpoint ON {schema}heads (thread_id, checkpoint_ns, checkpoint_id, seq);
ALTER TABLE {schema}heads ADD COLUMN gone boolean NOT NULL DEFAULT false;
UPDATE {schema}heads AS head SET gone = true WHERE kind = 2 OR EXISTS (
        SELECT FROM {schema}heads AS later WHERE later.thread_id = head.thread_id
        AND later.checkpoint_ns = head.checkpoint_ns AND later.checkpoint_id = head.checkpoint_id
        AND later.seq > head.seq
    );
CREATE INDEX heads_live ON {schema}heads (thread_id, checkpoint_ns, kind, checkpoint_id, seq) WHERE NOT gone;
CREATE TABLE {schema}specials (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, thread_id bytea NOT NULL, checkpoint_ns bytea NOT NULL, checkpoint_id bytea NOT NULL, task_id bytea NOT NULL, idx integer NOT NULL, call bytea NOT NULL, since bigint NOT NULL, head_seq bigint NOT NULL);
CREATE INDEX specials_by_checkpoint ON {schema}specials (thread_id, checkpoint_ns, checkpoint_id, seq);
DO $$ DECLARE one record; BEGIN
        FOR one IN SELECT grantee, privilege_type FROM pg_class, aclexplode(relacl)
            WHERE pg_class.oid = '{schema}heads'::regclass AND grantee <> relowner
            AND privilege_type IN ('SELECT', 'INSERT')
        LOOP
            EXECUTE 'GRANT ' || one.privilege_type || ' ON {schema}specials TO '
                || CASE one.grantee WHEN 0 THEN 'PUBLIC' ELSE one.grantee::regrole::text END;
            IF one.privilege_type = 'INSERT' THEN
                EXECUTE 'GRANT UPDATE (gone) ON {schema}heads TO '
                    || CASE one.grantee WHEN 0 THEN 'PUBLIC' ELSE one.grantee::regrole::text END;
            END IF;
        END LOOP;
    END $$
