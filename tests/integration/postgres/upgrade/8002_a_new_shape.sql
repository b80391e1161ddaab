-- What older releases cannot live with says so.
-- needs: 8002_a_new_shape

ALTER TABLE ready RENAME COLUMN due TO may_run;
