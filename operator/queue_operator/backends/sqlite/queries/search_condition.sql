-- Part of the statements of a search: what must hold of a job beside its place in the order.
-- Parameters: namespace; types, states, priorities, categories, tags (JSON arrays; an empty one
-- does not filter), tag_count; created_after, created_before, updated_after, updated_before
-- (exclusive); now; code (NULL does not filter); seen_states, those of the phases that are
-- wanted (as `states`), and whether these are among them: pending, delayed, scheduled, permanent
-- (FAILED), used_up (DEAD_LETTER).
namespace = :namespace
  AND created_at > :created_after AND created_at < :created_before
  AND updated_at > :updated_after AND updated_at < :updated_before
  AND (:types = '[]' OR type IN (SELECT value FROM json_each(:types)))
  AND (:states = '[]' OR state IN (SELECT value FROM json_each(:states)))
  AND (:priorities = '[]' OR priority IN (SELECT value FROM json_each(:priorities)))
  AND (:categories = '[]' OR category IN (SELECT value FROM json_each(:categories)))
  AND (:seen_states = '[]' OR CASE
      WHEN state IN ({{DEAD_LETTER}}) THEN
          CASE WHEN category = 'PERMANENT' THEN :permanent ELSE :used_up END
      WHEN state NOT IN ({{INITIAL_PENDING}}) THEN
          state IN (SELECT value FROM json_each(:seen_states))
      WHEN waiting THEN :pending
      WHEN eligible_at > :now THEN :delayed
      ELSE :scheduled END)
  AND (:code IS NULL OR code = :code)
  AND (:tag_count = 0 OR :tag_count = (
      SELECT count(*) FROM job_tag
      WHERE job_tag.number = job.number AND tag IN (SELECT value FROM json_each(:tags))))
