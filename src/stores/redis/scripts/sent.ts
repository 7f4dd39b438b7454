/** The text of a script as it is sent: without comments, indentation and empty lines. */
export function sent(script: string): string {
  return script
    .split("\n")
    .map((line) => line.replace(/--.*$/, "").trim())
    .filter((line) => line !== "")
    .join("\n");
}
