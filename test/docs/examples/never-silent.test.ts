import { expect, test } from "vitest";
import { Program } from "../../support/child.ts";

const file = "examples/demo/never-silent.js";

test("a silent command of the demo has dots, on a line of their own, and keeps its exit code", async () => {
  const program = new Program(process.execPath, [
    file,
    "Waiting",
    "sleep 3; echo first; echo second; exit 3",
  ]);
  expect(await program.ended).toBe(3);
  expect(program.output()).toMatch(/^Waiting …\n {2}\.+\nfirst\nsecond\n$/);
});

test("there are no dots after the invitation", async () => {
  const command = "echo Now it is your turn; sleep 3; echo end";
  const program = new Program(process.execPath, [file, "Waiting", command]);
  expect(await program.ended).toBe(0);
  expect(program.output()).toBe("Waiting …\nNow it is your turn\nend\n");
});
