import { afterAll, beforeAll, expect, inject, test } from "vitest";
import type { ClientName } from "../laboratory.ts";
import type { Service } from "../shop/service.ts";
import { keepLock, killService, loseWrite, startServices, terminateService } from "./endings.ts";
import { faults, type Topology } from "./topology.ts";
import { misses, ttlMs, underFault } from "./under-fault.ts";

/** The bounded version of `npm run lab -- topologies`: one fault and the endings. */
export function testOn(
  start: (binary: string) => Promise<Topology>,
  faultName: string,
  clients?: readonly [ClientName, ClientName],
): void {
  let topology: Topology;
  let pair: [Service, Service];
  beforeAll(async () => {
    topology = await start(inject("redisServerBinary"));
    pair = await startServices(topology, undefined, undefined, clients);
  });
  afterAll(async () => {
    await Promise.all(pair?.map((service) => service.kill()) ?? []);
    await topology?.stop();
  });

  test(`P1, P3 and P6: no lock is held twice and no user is stranded when ${faultName}`, async () => {
    const fault = faults.find(({ name }) => name === faultName);
    if (fault === undefined) throw new Error(`There is no fault "${faultName}".`);
    const outcome = await underFault(topology, pair, fault);
    expect(misses(fault, outcome), JSON.stringify(outcome)).toEqual([]);
  });

  test("P11: a lock that no replica heard of is taken again after a failover, with a higher token", async () => {
    expect(await loseWrite(topology, {}, clients)).toMatchObject({
      overlapped: true,
      wereApart: true,
      tokenRose: true,
      counterRepeated: true,
    });
  });

  test("P1: with ackReplicas, a lock that no replica heard of is not given to anybody", async () => {
    expect(await loseWrite(topology, { ackReplicas: 1 }, clients)).toMatchObject({
      refused: true,
      overlapped: false,
    });
  });

  test("P1: with ackReplicas, a lock outlives the master that gave it", async () => {
    expect(await keepLock(topology, { ackReplicas: 1 }, clients)).toEqual({
      meanwhile: [409],
      overlapped: false,
      status: 201,
    });
  });

  test("a service that is stopped finishes its order, frees its user at once and ends", async () => {
    const [stopped, other] = pair;
    const drained = await terminateService(stopped, other);
    expect(stopped.uncaught).toEqual([]);
    expect(drained).toMatchObject({ status: 201, exitCode: 0 });
    // The life of the key is what a user would wait who was not freed.
    expect(drained.freeAfterMs).toBeLessThan(ttlMs - 500);
  });

  test("a service that is killed in the middle of an order frees its user within the TTL", async () => {
    const [, killed] = pair;
    const [other, idle] = await startServices(topology, undefined, undefined, clients);
    try {
      expect(await killService(killed, other)).toBeLessThan(ttlMs + 2_000);
    } finally {
      await Promise.all([other.kill(), idle.kill()]);
    }
  });
}
