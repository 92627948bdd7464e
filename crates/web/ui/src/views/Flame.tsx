export function FlameView() { return <div />; }
