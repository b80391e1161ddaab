-- What older releases cannot live with says so.
-- needs: 0003_a_new_shape

ALTER TABLE ready RENAME COLUMN due TO may_run;
