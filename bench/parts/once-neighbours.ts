import { installPeers } from "../../test/lab/once/peers/install.ts";
import { measureSpeed, type Speed } from "../../test/lab/once/speed.ts";
import { atLeast, type Findings } from "../part.ts";
import { rounds, seconds } from "../settings.ts";
import { medianOf, pairedRatio } from "../statistics.ts";
import { number, quartilesText, table } from "../text.ts";

/** This package beside the idempotency libraries that install on plain Express. */
export async function onceNeighbours(binary: string): Promise<Findings> {
  installPeers();
  const speeds = await measureSpeed({ binary, rounds, seconds });
  const [bare, ours, ...neighbours] = speeds;
  if (bare === undefined || ours === undefined) throw new Error("nothing was measured");
  const cells = ({ rates }: Speed, kind: "fresh" | "replay") => [
    number(medianOf(rates[kind])),
    quartilesText(pairedRatio(rates[kind], bare.rates[kind])),
  ];
  const rows = speeds.map((row) => [row.name, ...cells(row, "fresh"), ...cells(row, "replay")]);
  const head = [
    "Express, 32 connections",
    "new orders with a key a second",
    "against no protection",
    "replays a second",
    "against no protection",
  ];
  return {
    text: `The shops of [the neighbours' table](../docs/evidence/once-neighbours.md), each in a process of its own. The handler only answers; where nothing protects the route, a replay is another order.

${table(head, rows)}`,
    targets: neighbours.flatMap((neighbour) =>
      (["fresh", "replay"] as const).map((kind) => {
        const ratio = pairedRatio(ours.rates[kind], neighbour.rates[kind]);
        const what = kind === "fresh" ? "new orders with a key" : "replays";
        return atLeast(
          `${what} a second against ${neighbour.name}`,
          1,
          ratio.median,
          quartilesText(ratio),
        );
      }),
    ),
  };
}
