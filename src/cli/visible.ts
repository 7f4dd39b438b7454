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

/** A user id within a sentence: in quotation marks where blanks at its ends would not be seen. */
export function visibleUser(user: string): string {
  return hasOuterBlanks(user) ? `"${visible(user)}"` : visible(user);
}

/** As a word that was pasted has them by mistake. */
export function hasOuterBlanks(user: string): boolean {
  return user !== user.trim();
}

/** JSON that a terminal may be shown: it escapes these characters too, and reads as the same value. */
export function json(value: unknown): string {
  return JSON.stringify(value).replace(invisible, (character) =>
    Array.from(
      { length: character.length },
      (_, at) => `\\u${character.charCodeAt(at).toString(16).padStart(4, "0")}`,
    ).join(""),
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
