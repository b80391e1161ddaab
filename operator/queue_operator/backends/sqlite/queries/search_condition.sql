-- Part of the statements of a search: what must hold of a job beside its place in the order.
-- Parameters: namespace; types, states, priorities, categories, tags (JSON arrays; an empty one
-- does not filter), tag_count; created_after, created_before, updated_after, updated_before
-- (exclusive); now; delayed, waiting, permanent, code (NULL does not
-- filter); permanent_word, the category that `permanent` asks for.
namespace = :namespace
  AND created_at > :created_after AND created_at < :created_before
  AND updated_at > :updated_after AND updated_at < :updated_before
  AND (:types = '[]' OR type IN (SELECT value FROM json_each(:types)))
  AND (:states = '[]' OR state IN (SELECT value FROM json_each(:states)))
  AND (:priorities = '[]' OR priority IN (SELECT value FROM json_each(:priorities)))
  AND (:categories = '[]' OR category IN (SELECT value FROM json_each(:categories)))
  AND (:delayed IS NULL OR (eligible_at > :now) = :delayed)
  AND (:waiting IS NULL OR waiting = :waiting)
  AND (:permanent IS NULL OR (coalesce(category, '') = :permanent_word) = :permanent)
  AND (:code IS NULL OR code = :code)
  AND (:tag_count = 0 OR :tag_count = (
      SELECT count(*) FROM job_tag
      WHERE job_tag.number = job.number AND tag IN (SELECT value FROM json_each(:tags))))
