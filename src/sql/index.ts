export { identify } from "../lock/submission.ts";
export { isRetryable, type SqlExecutor } from "./executor.ts";
export {
  type SqlSubmission,
  SubmissionTable,
  type SubmissionTableOptions,
} from "./submission-table.ts";
