import { testOn } from "./on-topology.ts";
import { startSentinels } from "./sentinel.ts";

testOn(startSentinels, "the master is killed, and started again later");
