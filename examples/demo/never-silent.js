// Runs a command, and prints a dot for each second in which the command prints nothing. A first
// start compiles for many seconds, during which the command itself cannot print.
//
//     node examples/demo/never-silent.js "What is going on" command arguments
//
// There are no dots after the invitation of the demo: from there on the reader is the one who acts.
import { spawn } from "node:child_process";

const [title, ...command] = process.argv.slice(2);
const quietMs = 1_000;
let isDotted = false;
let isReady = false;

const dots = setInterval(() => {
  if (!isDotted) process.stdout.write("  ");
  process.stdout.write(".");
  isDotted = true;
}, quietMs);

function pass(to) {
  return (chunk) => {
    if (isDotted) process.stdout.write("\n");
    isDotted = false;
    isReady ||= String(chunk).includes("it is your turn");
    if (isReady) clearInterval(dots);
    else dots.refresh();
    to.write(chunk);
  };
}

console.log(`${title} …`);
// In a shell, which finds npm and tsx on every system.
const child = spawn(command.join(" "), { shell: true, stdio: ["inherit", "pipe", "pipe"] });
child.stdout.on("data", pass(process.stdout));
child.stderr.on("data", pass(process.stderr));
// Ctrl+C reaches the command, too, which then closes what it has opened.
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => {});
child.on("close", (code) => {
  clearInterval(dots);
  if (isDotted) process.stdout.write("\n");
  process.exitCode = code ?? 1;
});
