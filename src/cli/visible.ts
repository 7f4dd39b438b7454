import type { Inspection } from "../lock/on-call.ts";

/** What a terminal would act upon or hide: control, format and bidirectional characters, lone surrogates. */
const invisible = /[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]/gu;

/** A text from outside, such as a customer's login name, as a terminal may be shown it. */
export function visible(text: string): string {
  return text.replace(
    invisible,
    (character) => `\\u{${character.codePointAt(0)?.toString(16).toUpperCase()}}`,
  );
}

/** The same of everything that somebody wrote into a lock. */
export function visibleInspection<Found extends Inspection>(found: Found): Found {
  switch (found.state) {
    case "held":
      return { ...found, holder: visible(found.holder) };
    case "freed":
      return { ...found, by: visible(found.by), reason: visible(found.reason) };
    default:
      return found;
  }
}
