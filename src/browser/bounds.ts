// Constants of another file are written into the bundle as numbers, which saves 40 bytes of it.

/** How long `submitOnce` waits for the final answer by default, all tries together, in ms. */
export const TIMEOUT_MS = 30_000;
/** A timer that is set for more than 2³¹ ms fires at once. */
export const LONGEST_TIMER_MS = 2e9;
/** The wait without `Retry-After`, doubled by each try: 200 ms after the first. */
export const DELAY_MS = 100;
export const LONGEST_DELAY_MS = 3_000;
/** The least wait: after `Retry-After: 0`, many pages would ask without a pause. */
export const LEAST_RETRY_AFTER_MS = 200;
export const LONGEST_RETRY_AFTER_MS = 1e9;
/** Up to a quarter is added to each wait, so that pages refused together do not return together. */
export const JITTER = 0.25;
/** A form can be sent again after this time: a download, 204 or stopped load shows no new page. */
export const FORM_BUSY_MS = 30_000;

export const UNAUTHORIZED = 401;
export const CONFLICT = 409;
export const SERVER_ERROR = 500;
