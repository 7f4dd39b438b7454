import { bothLibraries } from "../laboratory.ts";
import { startReplicatedCluster } from "./cluster.ts";
import { testOn } from "./on-topology.ts";

testOn(startReplicatedCluster, "the master is paused beyond the failover", bothLibraries);
