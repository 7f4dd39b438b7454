import { spawnSync } from "node:child_process";
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { dashboards } from "../../support/board.ts";
import { Program } from "../../support/child.ts";
import { freePort } from "../../support/free-port.ts";
import { installOnDebian } from "../../support/server-binary.ts";

/** A series of an answer: its labels, and its values over time. */
export interface Series {
  readonly metric: Readonly<Record<string, string>>;
  readonly values: readonly (readonly [number, string])[];
}

/** A Prometheus of our own on loopback, with the documented configuration and a faster clock. */
export class Prometheus {
  readonly #child: Program;
  readonly #url: string;
  readonly #folder: string;

  private constructor(child: Program, url: string, folder: string) {
    this.#child = child;
    this.#url = url;
    this.#folder = folder;
  }

  /** @param target the port of the process that it scrapes once a second. */
  static async start(target: number): Promise<Prometheus> {
    const folder = mkdtempSync(join(tmpdir(), "submit-lock-prometheus-"));
    const documented = readFileSync(`${dashboards}prometheus.yml`, "utf8");
    const config = documented
      .replace("scrape_interval: 15s", "scrape_interval: 1s\n  evaluation_interval: 1s")
      .replace("127.0.0.1:9464", `127.0.0.1:${target}`);
    writeFileSync(join(folder, "prometheus.yml"), config);
    copyFileSync(`${dashboards}alerts.yaml`, join(folder, "alerts.yaml"));
    const port = await freePort();
    const args = [
      `--config.file=${join(folder, "prometheus.yml")}`,
      `--storage.tsdb.path=${join(folder, "data")}`,
      `--web.listen-address=127.0.0.1:${port}`,
      "--log.level=error",
    ];
    const child = new Program("prometheus", args);
    const prometheus = new Prometheus(child, `http://127.0.0.1:${port}`, folder);
    await child.until(() => prometheus.#isReady(), "to be ready");
    return prometheus;
  }

  async #isReady(): Promise<boolean> {
    const answer = await fetch(`${this.#url}/-/ready`).catch(() => undefined);
    return answer?.ok === true;
  }

  /** What a query gives over the time from one moment to another, a value a second. */
  async range(query: string, fromMs: number, toMs: number): Promise<readonly Series[]> {
    const times = { start: `${fromMs / 1_000}`, end: `${toMs / 1_000}`, step: "1" };
    const { result } = await this.#get("query_range", { query, ...times });
    return result as readonly Series[];
  }

  /** The names of the alerts that fire now. */
  async firing(): Promise<string[]> {
    const { alerts } = await this.#get("alerts", {});
    const all = alerts as { state: string; labels: { alertname: string } }[];
    return all.filter(({ state }) => state === "firing").map(({ labels }) => labels.alertname);
  }

  async #get(path: string, query: Record<string, string>): Promise<Record<string, unknown>> {
    const answer = await fetch(`${this.#url}/api/v1/${path}?${new URLSearchParams(query)}`);
    const { data, error } = (await answer.json()) as {
      data?: Record<string, unknown>;
      error?: string;
    };
    if (data === undefined) throw new Error(`${path} ${query["query"] ?? ""}: ${error}`);
    return data;
  }

  async stop(): Promise<void> {
    this.#child.kill();
    await this.#child.ended;
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

const ADVICE = `\`npm run lab -- dashboards\` needs prometheus and promtool on the PATH (2.42 or newer) and found none.
  macOS           brew install prometheus
  Debian, Ubuntu  sudo apt-get install prometheus   (as root this command does it by itself)`;

/** Makes sure that `prometheus` and `promtool` are on the PATH; on Debian and Ubuntu as root it installs them. */
export function requirePrometheus(): void {
  if (isThere()) return;
  // The package may start a service on port 9090, which nobody used before this line.
  if (!installOnDebian("prometheus", "prometheus") || !isThere()) throw new Error(ADVICE);
}

function isThere(): boolean {
  return ["prometheus", "promtool"].every(
    (name) => spawnSync(name, ["--version"], { stdio: "ignore", timeout: 10_000 }).status === 0,
  );
}
